// SPDX-License-Identifier: Apache-2.0
// Mounts in a directory of segments, also one that never answers: a file system in user space that
// its maker lets others use. Needs root and /dev/fuse.
#include "collector/segments/mount_guard.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>

#include "collector/segments/segment_table.h"
#include "collector/testing/table_fixture.h"

namespace nccl_exporter::collector {
namespace {

// Nobody answers its requests. If a process waits for it for too long, it ends, and says so.
class SilentMount {
 public:
  explicit SilentMount(std::string path)
      : path_(std::move(path)), fuse_(::open("/dev/fuse", O_RDWR | O_CLOEXEC)) {
    const std::string type = std::filesystem::is_directory(path_) ? "40000" : "100000";
    const std::string options = "fd=" + std::to_string(fuse_) + ",rootmode=" + type +
                                ",user_id=1001,group_id=1001,allow_other";
    is_mounted_ = fuse_ >= 0 && ::mount("silent", path_.c_str(), "fuse", MS_NOSUID | MS_NODEV,
                                        options.c_str()) == 0;
    watch_ = std::thread([this] {
      std::unique_lock lock(mutex_);
      if (over_.wait_for(lock, std::chrono::seconds(30), [this] { return is_over_; })) return;
      was_waited_for_ = true;
      ::close(fuse_);
      fuse_ = -1;
    });
  }
  ~SilentMount() {
    End();
    if (is_mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  bool is_mounted() const { return is_mounted_; }
  bool WasWaitedFor() {
    End();
    return was_waited_for_;
  }

 private:
  void End() {
    if (!watch_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    over_.notify_all();
    watch_.join();
    if (fuse_ >= 0) ::close(fuse_);
  }

  const std::string path_;
  int fuse_;
  bool is_mounted_ = false;
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::atomic<bool> was_waited_for_{false};
  std::thread watch_;
};

class MountGuardTest : public TableFixture {
 protected:
  // Each mount in its own directory of the table.
  void ExpectThatNobodyWaits(const std::string& name, SegmentTable& table) {
    SilentMount mount(Path(name));
    if (!mount.is_mounted()) GTEST_SKIP() << "cannot mount a file system in user space here";
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(SnapshotOf(table, now_).segments.live + SnapshotOf(table, now_).segments.exited,
                1u);
      Advance(kRescanInterval);
    }
    EXPECT_FALSE(mount.WasWaitedFor());
  }
};

// Regression: the daemon waited for a file system that never answers, with all users' files.
TEST_F(MountGuardTest, NobodyWaitsForASubdirectoryThatNeverAnswers) {
  SegmentWith(1).WriteTo(Path("x.seg"));
  std::filesystem::create_directory(Path("pod"));
  ExpectThatNobodyWaits("pod", table_);
}

TEST_F(MountGuardTest, NobodyWaitsForADirectoryWithASegmentsName) {
  SegmentWith(1).WriteTo(Path("x.seg"));
  std::filesystem::create_directory(Path("y.seg"));
  ExpectThatNobodyWaits("y.seg", table_);
}

TEST_F(MountGuardTest, NobodyWaitsForAFileThatNeverAnswers) {
  SegmentWith(1).WriteTo(Path("x.seg"));
  std::ofstream{Path("y.seg")};
  ExpectThatNobodyWaits("y.seg", table_);
}

TEST_F(MountGuardTest, NobodyWaitsForAPrivateDirectoryThatNeverAnswers) {
  SegmentTable table({scratch_.path(), Path("private-*")}, kRetention);
  SegmentWith(1).WriteTo(Path("x.seg"));
  std::filesystem::create_directory(Path("private-1001"));
  ExpectThatNobodyWaits("private-1001", table);
}

TEST_F(MountGuardTest, NobodyWaitsForASubdirectoryThatStopsToAnswer) {
  SegmentWith(1).WriteTo(Path("x.seg"));
  std::filesystem::create_directory(Path("pod"));
  EXPECT_EQ(Snapshot().segments.exited, 1u);
  ExpectThatNobodyWaits("pod", table_);
}

TEST_F(MountGuardTest, TellsAMountFromItsDirectory) {
  std::filesystem::create_directory(Path("mount"));
  std::filesystem::create_directory(Path("plain"));
  if (::mount("none", Path("mount").c_str(), "tmpfs", 0, nullptr) != 0)
    GTEST_SKIP() << "cannot mount here";
  const FileDescriptor directory(::open(scratch_.path().c_str(), O_RDONLY | O_DIRECTORY));
  const MountGuard guard(directory.number());
  struct stat status {};
  EXPECT_EQ(guard.LookAt("plain", status), MountGuard::Sight::kHere);
  EXPECT_EQ(guard.LookAt("mount", status), MountGuard::Sight::kElsewhere);
  EXPECT_EQ(guard.LookAt("gone", status), MountGuard::Sight::kGone);
  EXPECT_TRUE(OpenInside(directory.number(), "plain", O_RDONLY).is_open());
  EXPECT_FALSE(OpenInside(directory.number(), "mount", O_RDONLY).is_open());
  ::umount2(Path("mount").c_str(), MNT_DETACH);
}

}  // namespace
}  // namespace nccl_exporter::collector
