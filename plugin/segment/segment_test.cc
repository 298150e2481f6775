// SPDX-License-Identifier: Apache-2.0
#include "plugin/segment/segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>

#include "plugin/segment/atomics.h"

namespace nccl_exporter::plugin {
namespace {

const char* Nothing(const char*) { return nullptr; }

class SegmentTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "segmentXXXXXX";
    directory_ = mkdtemp(pattern.data());
    options_.directory = directory_.c_str();
    options_.communicators = 3;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  bool Create() {
    if (!segment_.Create(options_, Nothing, error_, sizeof(error_))) return false;
    segment_.Publish();
    return true;
  }
  bool AnotherSeesLock() const {
    const pid_t child = fork();
    if (child == 0) {
      struct flock probe {};
      probe.l_type = F_RDLCK;
      const int file = open(segment_.path(), O_RDONLY);
      _exit(fcntl(file, F_GETLK, &probe) == 0 && probe.l_type == F_WRLCK ? 0 : 1);
    }
    int status = 0;
    return waitpid(child, &status, 0) == child && status == 0;
  }
  size_t Files() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(directory_), {}));
  }

  std::string directory_;
  Options options_;
  Segment segment_;
  char error_[256] = "";
};

TEST_F(SegmentTest, IsSparseReadableByOthersAndPublished) {
  const mode_t former = umask(077);
  ASSERT_TRUE(Create()) << error_;
  umask(former);
  struct stat status {};
  ASSERT_EQ(stat(segment_.path(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0644u);
  EXPECT_EQ(static_cast<size_t>(status.st_size),
            sizeof(layout::SegmentHeader) + 4 * sizeof(layout::CommunicatorSlot));
  // Reserved: the header and the overflow slot, with a page to spare.
  constexpr size_t kPageBytes = 4096;
  EXPECT_LE(static_cast<size_t>(status.st_blocks) * 512,
            sizeof(layout::SegmentHeader) + sizeof(layout::CommunicatorSlot) + kPageBytes);
  EXPECT_EQ(LoadAcquire(segment_.header()->version), layout::kVersion);
  EXPECT_EQ(segment_.header()->magic, layout::kMagic);
  EXPECT_EQ(segment_.header()->slot_count, 4u);
}

TEST_F(SegmentTest, HoldsALockThatAnotherProcessSees) {
  ASSERT_TRUE(Create()) << error_;
  EXPECT_TRUE(AnotherSeesLock());
}

// Regression: a job that closed any descriptor of the file was dead to the daemon for good.
TEST_F(SegmentTest, TakesItsLockAgainWithTheNextCommunicator) {
  ASSERT_TRUE(Create()) << error_;
  close(open(segment_.path(), O_RDONLY));
  EXPECT_FALSE(AnotherSeesLock()) << "so the kernel does it";
  ASSERT_TRUE(segment_.Reserve(0, 1));
  EXPECT_TRUE(AnotherSeesLock());
}

TEST_F(SegmentTest, ReservesASlotBeforeItIsTouched) {
  ASSERT_TRUE(Create()) << error_;
  struct stat before {
  }, after{};
  stat(segment_.path(), &before);
  ASSERT_TRUE(segment_.Reserve(1, 1));
  stat(segment_.path(), &after);
  EXPECT_GE(static_cast<size_t>(after.st_blocks - before.st_blocks) * 512,
            sizeof(layout::CommunicatorSlot));
  StoreRelaxed(segment_.slot(1)->functions[3].calls, 7);
  ASSERT_TRUE(segment_.Reserve(1, 1));
  EXPECT_EQ(LoadRelaxed(segment_.slot(1)->functions[3].calls), 0u)
      << "a slot that is reserved again is not cleared";
}

TEST_F(SegmentTest, NoReaderFindsASlotFreeOrEmptiedWhileItIsReservedAgain) {
  ASSERT_TRUE(Create()) << error_;
  ASSERT_TRUE(segment_.Reserve(1, 1));
  layout::CommunicatorSlot* const slot = segment_.slot(1);
  AtomicU64& calls = slot->functions[kFunctionCount - 1].calls;
  const auto close = [&](uint64_t generation) {
    StoreRelaxed(calls, 7);
    StoreRelease(slot->state, layout::StateWord(generation, layout::SlotState::kClosed));
  };
  close(1);
  std::atomic<bool> is_over{false};
  std::atomic<uint64_t> looks{0};
  std::atomic<uint64_t> found_free{0};
  std::atomic<uint64_t> found_emptied{0};
  std::thread reader([&] {
    for (; !is_over.load(); looks.fetch_add(1)) {
      const uint64_t before = LoadAcquire(slot->state);
      const uint64_t copy = LoadAcquire(calls);
      const uint64_t after = LoadAcquire(slot->state);
      const bool is_closed = layout::StateOf(before) == layout::SlotState::kClosed;
      found_free.fetch_add(layout::StateOf(before) == layout::SlotState::kFree ? 1 : 0);
      found_emptied.fetch_add(is_closed && before == after && copy != 7 ? 1 : 0);
    }
  });
  constexpr uint64_t kLooks = 100'000;
  for (uint64_t generation = 2; looks.load() < kLooks; ++generation) {
    EXPECT_TRUE(segment_.Reserve(1, generation));
    EXPECT_EQ(LoadRelaxed(slot->state), layout::StateWord(generation, layout::SlotState::kClaimed));
    close(generation);
  }
  is_over.store(true);
  reader.join();
  EXPECT_EQ(found_free.load(), 0u);
  EXPECT_EQ(found_emptied.load(), 0u);
}

TEST_F(SegmentTest, SaysWhyItCannotBeCreatedAndLeavesNothingBehind) {
  options_.directory = "/nonexistent/directory";
  EXPECT_FALSE(Create());
  EXPECT_STREQ(error_,
               "cannot open segment directory /nonexistent/directory: No such file or directory");

  const std::string file = directory_ + "/file";
  close(open(file.c_str(), O_CREAT | O_WRONLY, 0600));
  options_.directory = file.c_str();
  EXPECT_FALSE(Create());
  EXPECT_NE(std::string(error_).find("Not a directory"), std::string::npos) << error_;
  EXPECT_EQ(Files(), 1u);
}

// Beyond the limit the kernel would not fail but kill.
TEST_F(SegmentTest, StaysWithinTheFileSizeLimit) {
  const auto with_limit = [&](rlim_t bytes, auto check) {
    const pid_t child = fork();
    if (child == 0) {
      const rlimit limit{bytes, bytes};
      setrlimit(RLIMIT_FSIZE, &limit);
      _exit(check() ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return status;
  };
  const rlim_t two_slots = sizeof(layout::SegmentHeader) + 2 * sizeof(layout::CommunicatorSlot);
  EXPECT_EQ(
      with_limit(two_slots,
                 [&] { return Create() && segment_.slot_count() == 2 && segment_.Reserve(0, 1); }),
      0);
  EXPECT_EQ(
      with_limit(two_slots - 1,
                 [&] { return !Create() && std::strstr(error_, "File too large") != nullptr; }),
      0);
  EXPECT_EQ(Files(), 1u);  // of the first child
}

TEST_F(SegmentTest, GivesEveryFileANameOfItsOwn) {
  ASSERT_TRUE(Create()) << error_;
  Segment second;
  ASSERT_TRUE(second.Create(options_, Nothing, error_, sizeof(error_))) << error_;
  EXPECT_STRNE(segment_.path(), second.path());
  EXPECT_EQ(Files(), 2u);
}

}  // namespace
}  // namespace nccl_exporter::plugin
