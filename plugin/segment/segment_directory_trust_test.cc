// SPDX-License-Identifier: Apache-2.0
// In whose directories a job leaves its segment. Skipped where the test cannot become other users.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "plugin/segment/segment.h"

namespace nccl_exporter::plugin {
namespace {

const char* Nothing(const char*) { return nullptr; }

// Directories of several users, and processes of them: only root may make them.
class SegmentDirectoryTrust : public testing::Test {
 protected:
  static constexpr uid_t kDaemon = 54320, kJob = 54321, kStranger = 54322;

  void SetUp() override {
    std::string pattern = "/dev/shm/trustXXXXXX";  // on the way to it, every user may pass
    parent_ = mkdtemp(pattern.data());
    if (chown(parent_.c_str(), kStranger, kStranger) != 0)
      GTEST_SKIP() << "needs root, to become other users";
    shared_ = parent_ + "/segments";
    std::filesystem::create_directory(shared_);
    options_.directory = shared_.c_str();
    options_.communicators = 3;
  }
  void TearDown() override {
    if (!parent_.empty()) std::filesystem::remove_all(parent_);
  }
  void Give(const std::string& path, uid_t owner, mode_t mode) {
    ASSERT_EQ(chown(path.c_str(), owner, static_cast<gid_t>(-1)), 0);
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
  }
  // Whether a process of the user kJob makes a segment; else error_ says why.
  bool JobCreates() {
    int pipe_ends[2];
    EXPECT_EQ(pipe(pipe_ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      const bool is_user = setresgid(kJob, kJob, kJob) == 0 && setresuid(kJob, kJob, kJob) == 0;
      const bool is_created = is_user && segment_.Create(options_, Nothing, error_, sizeof(error_));
      const char* const said = is_created ? segment_.path() : error_;
      _exit(write(pipe_ends[1], said, std::strlen(said)) >= 0 && is_created ? 0 : 1);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    close(pipe_ends[1]);
    const ssize_t length = read(pipe_ends[0], said_, sizeof(said_) - 1);
    said_[length > 0 ? length : 0] = '\0';
    close(pipe_ends[0]);
    return status == 0;
  }
  bool Says(const char* part) const { return std::strstr(said_, part) != nullptr; }

  std::string parent_;
  std::string shared_;
  Options options_;
  Segment segment_;
  char error_[256] = "";
  char said_[512] = "";
};

TEST_F(SegmentDirectoryTrust, UsesTheDaemonsDirectoryWhereOnlyRootCouldPutIt) {
  Give(parent_, 0, 0755);
  Give(shared_, kDaemon, 01777);
  EXPECT_TRUE(JobCreates()) << said_;
}

TEST_F(SegmentDirectoryTrust, RefusesADirectoryThatAnybodyCouldHavePutThere) {
  Give(parent_, 0, 01777);
  Give(shared_, kStranger, 01777);
  EXPECT_FALSE(JobCreates());
  EXPECT_TRUE(Says("belongs to user 54322")) << said_;
  Give(shared_, 0, 01777);
  EXPECT_TRUE(JobCreates()) << "root's: " << said_;
  Give(shared_, 998, 01777);
  EXPECT_TRUE(JobCreates()) << "an account of the system, as the package makes it: " << said_;
  Give(shared_, kJob, 0755);
  EXPECT_TRUE(JobCreates()) << "its own: " << said_;
}

TEST_F(SegmentDirectoryTrust, RefusesADirectoryWhereOthersMayRemoveFiles) {
  Give(parent_, 0, 0755);
  for (const mode_t mode : {0777, 0775}) {
    Give(shared_, 0, mode);
    ASSERT_EQ(chown(shared_.c_str(), 0, kJob), 0);  // its group
    EXPECT_FALSE(JobCreates()) << std::oct << mode;
    EXPECT_TRUE(Says("sticky bit")) << said_;
  }
  Give(shared_, 0, 01775);
  EXPECT_TRUE(JobCreates()) << said_;
  Give(shared_, kJob, 0775);
  EXPECT_TRUE(JobCreates()) << "shared with its group by the user itself: " << said_;
}

TEST_F(SegmentDirectoryTrust, SaysThatADirectoryIsClosedToTheJob) {
  Give(parent_, 0, 0755);
  Give(shared_, 0, 0);
  EXPECT_FALSE(JobCreates());
  EXPECT_TRUE(Says("Permission denied")) << said_;
}

// The directory of a pod, as the kubelet makes it.
TEST_F(SegmentDirectoryTrust, UsesAMountPointOfRootsWithoutTheStickyBit) {
  const bool is_alone =
      unshare(CLONE_NEWNS) == 0 && mount("", "/", "", MS_REC | MS_PRIVATE, nullptr) == 0;
  if (!is_alone || mount("tmpfs", shared_.c_str(), "tmpfs", 0, "mode=777") != 0)
    GTEST_SKIP() << "no mount namespaces here";
  Give(parent_, 0, 0755);
  Give(shared_, 0, 0777);
  EXPECT_TRUE(JobCreates()) << said_;
  Give(shared_, kStranger, 0777);
  EXPECT_FALSE(JobCreates());
  EXPECT_TRUE(Says("sticky bit")) << said_;
  umount2(shared_.c_str(), MNT_DETACH);
  Give(shared_, 0, 0777);
  EXPECT_FALSE(JobCreates()) << "the directory below is none";
}

TEST_F(SegmentDirectoryTrust, MakesADirectoryOfItsUserWhereNoneIsShared) {
  // Over those of this machine, for this process alone.
  const auto cover = [](const char* path, const char* mode) {
    return mount("tmpfs", path, "tmpfs", 0, mode) == 0;
  };
  const bool is_alone =
      unshare(CLONE_NEWNS) == 0 && mount("", "/", "", MS_REC | MS_PRIVATE, nullptr) == 0;
  if (!is_alone || !cover("/run", "mode=755") || !cover("/dev/shm", "mode=1777")) {
    GTEST_SKIP() << "no mount namespaces here";
  }
  const std::string own = "/dev/shm/nccl-exporter-54321";
  options_.directory = nullptr;
  const mode_t former = umask(077);
  EXPECT_TRUE(JobCreates()) << said_;
  umask(former);
  EXPECT_TRUE(Says((own + '/').c_str())) << said_;
  struct stat status {};
  ASSERT_EQ(stat(own.c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, kJob);
  EXPECT_EQ(status.st_mode & 07777, 0755u);
  Give(own, kStranger, 01777);
  EXPECT_FALSE(JobCreates()) << "somebody else was first";
  EXPECT_TRUE(Says("belongs to user 54322")) << said_;
  umount2("/dev/shm", MNT_DETACH);
  umount2("/run", MNT_DETACH);
}

}  // namespace
}  // namespace nccl_exporter::plugin
