// SPDX-License-Identifier: Apache-2.0
// Files that are, or only look like, segments.
#include "collector/segments/segment_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <optional>
#include <string>

#include "collector/reader/segment_reader.h"
#include "collector/segments/file_descriptor.h"
#include "collector/testing/lock_holder.h"
#include "collector/testing/scratch_directory.h"
#include "collector/testing/segment_writer_v1.h"

namespace nccl_exporter::collector {
namespace {

class SegmentFileTest : public testing::Test {
 protected:
  void WriteSegment() {
    SegmentWriterV1 writer(3);
    writer.Put(ProcessV1{.pid = 7, .uid = ::getuid()});
    writer.Put(0, CommunicatorV1{.id = 5});
    writer.Publish();
    writer.WriteTo(path_);
  }

  std::optional<SegmentFile> Open() {
    const FileDescriptor folder(::open(directory_.path().c_str(), O_PATH | O_DIRECTORY));
    return SegmentFile::Open(folder.number(), "x.seg", &error_, &detail_);
  }

  ScratchDirectory directory_;
  const std::string path_ = directory_.File("x.seg");
  SegmentError error_ = SegmentError::kCount;
  std::string detail_;
};

TEST_F(SegmentFileTest, KnowsWhetherItsWriterLives) {
  WriteSegment();
  const std::optional<SegmentFile> file = Open();
  ASSERT_TRUE(file);
  {
    const LockHolder writer(path_);
    EXPECT_TRUE(file->FindWriter().is_alive);
  }
  EXPECT_FALSE(file->FindWriter().is_alive);
}

TEST_F(SegmentFileTest, SaysWhyAFileCannotBeOpened) {
  EXPECT_FALSE(Open());
  EXPECT_EQ(error_, SegmentError::kOpenFailed);
  EXPECT_EQ(detail_, "No such file or directory");
}

TEST_F(SegmentFileTest, RefusesDirectoriesLinksAndFifosWithoutWaiting) {
  std::filesystem::create_directory(path_);
  EXPECT_FALSE(Open());
  EXPECT_EQ(error_, SegmentError::kNotARegularFile);

  std::filesystem::remove(path_);
  std::filesystem::create_symlink("/etc/hostname", path_);
  error_ = SegmentError::kCount;
  EXPECT_FALSE(Open());
  EXPECT_EQ(error_, SegmentError::kNotARegularFile);

  std::filesystem::remove(path_);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  error_ = SegmentError::kCount;
  EXPECT_FALSE(Open());
  EXPECT_EQ(error_, SegmentError::kNotARegularFile);
}

// Rootless containers and pods with user namespaces of their own.
TEST_F(SegmentFileTest, ReadsASegmentWhoseWriterKnowsItselfByAnotherUserNumber) {
  SegmentWriterV1 writer(2);
  writer.Put(ProcessV1{.uid = ::getuid() + 1});
  writer.Publish();
  writer.WriteTo(path_);
  const std::optional<SegmentFile> file = Open();
  ASSERT_TRUE(file);
  EXPECT_EQ(ReadSegment(*file, {.now = Now()}).process.value().uid, ::getuid());
}

TEST_F(SegmentFileTest, ReadsShortBeyondTheEnd) {
  WriteSegment();
  const std::optional<SegmentFile> file = Open();
  ASSERT_TRUE(file);
  std::array<std::byte, 100> bytes{};
  ASSERT_EQ(::truncate(path_.c_str(), 60), 0);
  EXPECT_EQ(file->Read(0, bytes), 60);
  EXPECT_EQ(file->Read(60, bytes), 0);
  EXPECT_EQ(file->Read(uint64_t{1} << 63, bytes), -1);
  EXPECT_EQ(file->Size(), 60u);
}

}  // namespace
}  // namespace nccl_exporter::collector
