// SPDX-License-Identifier: Apache-2.0
// Listings of large directories: their parts, their rests, and how many files they open.
#include <cstdint>
#include <filesystem>
#include <fstream>

#include "collector/segments/segment_table.h"
#include "collector/testing/lock_holder.h"
#include "collector/testing/table_of_users_fixture.h"

namespace nccl_exporter::collector {
namespace {

using SegmentListingTest = TableFixture;
using SegmentListingOfUsersTest = TableOfUsersFixture;

// Regression: names that are no segments' were not counted, so there was no rest after listing any
// number of them.
TEST_F(SegmentListingTest, RestsAfterListingManyNamesOfAnyKind) {
  for (int64_t i = 0; i < kNamesAtEase; ++i) std::ofstream{Path(std::to_string(i))};
  Snapshot();
  SegmentWith(1).WriteTo(Path("x.seg"));
  Advance(std::chrono::milliseconds(50));
  EXPECT_TRUE(Snapshot().processes.empty());
  Advance(std::chrono::milliseconds(200));
  EXPECT_EQ(Snapshot().processes.size(), 1u);
}

// Regression: a directory was listed in one go, and scrapes and observation waited for it: 0.7 s
// for 200,000 names.
TEST_F(SegmentListingOfUsersTest, ServesOthersBetweenThePartsOfAListing) {
  SegmentWith(3).WriteTo(Path("small.seg"));
  Give("small.seg", kSmallUser);
  const LockHolder writer(Path("small.seg"));
  MakeSegments(kBigUser, kMaxSegmentsPerUser + 2);
  NodeSnapshot before = Snapshot();
  const int64_t names = 5 * kNamesPerPart;
  MakeEmpty(kBigUser, 100);
  for (int64_t i = 0; i < names; ++i) std::ofstream{Path(std::to_string(i))};
  Advance(kRescanInterval);
  int parts = 1;
  for (of_users_->Discover(now_); of_users_->IsDiscovering();
       of_users_->DiscoverMore(now_), ++parts) {
    const NodeSnapshot between = of_users_->Read(of_users_->Look(now_), now_);
    ASSERT_EQ(ProcessesOf(between, kSmallUser), 1u);
    ASSERT_EQ(ProcessesOf(between, kBigUser), kMaxSegmentsPerUser);
    ASSERT_EQ(TroubleOf(between, SegmentError::kTooManySegments, kBigUser)->present, 1u);
    ASSERT_EQ(Count(between, SegmentError::kTooManySegments), 1u);
  }
  EXPECT_GE(parts, names / kNamesPerPart);
  const NodeSnapshot after = of_users_->Read(of_users_->Look(now_), now_);
  EXPECT_EQ(after.segments.starting, 100u);
  EXPECT_EQ(after.processes.size(), before.processes.size());
  EXPECT_EQ(TroubleOf(after, SegmentError::kTooManySegments, kBigUser)->present, 1u);
}

TEST_F(SegmentListingTest, OnePartOpensOnlySoManyFiles) {
  constexpr int64_t kAtMost = kNamesPerPart / kNamesPerOpen;
  for (int64_t i = 0; i < 3 * kAtMost; ++i)
    std::ofstream(Path(std::to_string(i) + ".seg")) << "certainly no segment";
  table_.Discover(now_);
  EXPECT_TRUE(table_.IsDiscovering());
  EXPECT_GT(table_.Read({}, now_).segments.unusable, static_cast<uint64_t>(kAtMost / 2));
  EXPECT_LE(table_.Read({}, now_).segments.unusable, static_cast<uint64_t>(kAtMost));
  EXPECT_EQ(Snapshot().segments.unusable, static_cast<uint64_t>(3 * kAtMost));
}

// Directories take turns.
TEST_F(SegmentListingTest, ALargeDirectoryKeepsNoOtherWaiting) {
  std::filesystem::create_directory(Path("large"));
  std::filesystem::create_directory(Path("small"));
  for (int64_t i = 0; i < 5 * kNamesPerPart; ++i) std::ofstream{Path("large/" + std::to_string(i))};
  SegmentWith(1).WriteTo(Path("small/x.seg"));
  SegmentTable table({Path("large"), Path("small")}, kRetention);
  table.Discover(now_);
  table.DiscoverMore(now_);
  EXPECT_TRUE(table.IsDiscovering());
  EXPECT_EQ(table.Read(table.Look(now_), now_).processes.size(), 1u);
}

// Changes may be unknown if they happened while the directory must not be listed, or since its
// listing began.
TEST_F(SegmentListingTest, SaysUntilWhenAllFilesAreKnown) {
  EXPECT_EQ(table_.KnownUntil(now_), INT64_MIN);
  Snapshot();
  EXPECT_EQ(table_.KnownUntil(now_), now_.monotonic_ns);
  for (int64_t i = 0; i <= 2 * kNamesAtEase; ++i) std::ofstream{Path(std::to_string(i))};
  const Moment begun = now_;
  table_.Discover(now_);
  EXPECT_TRUE(table_.IsDiscovering());
  Advance(std::chrono::milliseconds(5));
  EXPECT_EQ(table_.KnownUntil(now_), begun.monotonic_ns);
  while (table_.IsDiscovering()) table_.DiscoverMore(now_);
  EXPECT_EQ(table_.KnownUntil(now_), now_.monotonic_ns) << "nothing has changed since it began";
  SegmentWith(1).WriteTo(Path("x.seg"));
  Advance(std::chrono::milliseconds(50));
  Snapshot();  // not listed: it rests
  EXPECT_EQ(table_.KnownUntil(now_), begun.monotonic_ns);
  Advance(kRescanInterval);
  EXPECT_EQ(Snapshot().processes.size(), 1u);
  EXPECT_EQ(table_.KnownUntil(now_), now_.monotonic_ns);
}

// Regression: what found no room was opened at each listing all the same.
TEST_F(SegmentListingTest, OpensNoMoreFilesOfAUserThanItCanRemember) {
  constexpr size_t kFiles = kMaxOpensPerUser + 500;
  for (size_t i = 0; i < kFiles; ++i) std::ofstream(Path(std::to_string(i) + ".seg")) << "x";
  const auto bytes_read = [] {
    std::ifstream file("/proc/self/io");
    std::string name;
    uint64_t bytes = 0;
    file >> name >> bytes;
    return bytes;
  };
  if (bytes_read() == 0) GTEST_SKIP() << "/proc/self/io does not say what is read here";
  const uint64_t before = bytes_read();
  Snapshot();  // reads the one byte of each file that it opens
  const uint64_t opened = bytes_read() - before;
  EXPECT_GE(opened, kMaxOpensPerUser);
  EXPECT_LT(opened, kFiles);
  EXPECT_EQ(Count(Snapshot(), SegmentError::kTooManySegments), 1u);
  // The next time only as many as can still be remembered.
  Advance(kRescanInterval);
  const uint64_t before_again = bytes_read();
  Snapshot();
  EXPECT_LT(bytes_read() - before_again, kMaxSegmentsPerUser + 500);
}

TEST_F(SegmentListingTest, FindsSegmentsAmongMoreFilesThatAreNone) {
  for (size_t i = 0; i < kMaxSegments + 1; ++i)
    std::filesystem::create_symlink("x", Path(std::to_string(i) + ".seg"));
  EXPECT_EQ(Snapshot().segments.unusable, kMaxSegments + 1);
  SegmentWith(1).WriteTo(Path("x.seg"));
  EXPECT_EQ(Snapshot().processes.size(), 1u);
}

}  // namespace
}  // namespace nccl_exporter::collector
