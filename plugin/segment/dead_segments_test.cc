// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "plugin/segment/atomics.h"
#include "plugin/segment/segment.h"

namespace nccl_exporter::plugin {
namespace {

constexpr uint64_t kMinuteNs = 60'000'000'000;

const char* Nothing(const char*) { return nullptr; }

class DeadSegments : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "deadXXXXXX";
    directory_ = mkdtemp(pattern.data());
    options_.directory = directory_.c_str();
    options_.communicators = 3;
    options_.retention_ns = 1;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  using Names = std::set<std::string>;
  Names Files() const {
    Names names;
    for (const auto& entry : std::filesystem::directory_iterator(directory_))
      names.insert(entry.path().filename());
    return names;
  }
  // The name of the segment that a process has left, whose slot 0 shows a sign of life so long ago.
  std::string Leave(uint64_t age_ns = 2 * kMinuteNs) {
    const Names before = Files();
    const pid_t child = fork();
    if (child == 0) {
      char error[256] = "";
      Segment segment;
      if (!segment.Create(options_, Nothing, error, sizeof(error)) || !segment.Reserve(0, 1))
        _exit(1);
      segment.header()->start_realtime_ns -= 3 * kMinuteNs;
      segment.header()->start_monotonic_ns -= 3 * kMinuteNs;
      StoreRelaxed(segment.slot(0)->functions[1].last_completion_ns, NowNs() - age_ns);
      Age(segment.path());
      _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    for (const std::string& name : Files()) {
      if (!before.contains(name)) return name;
    }
    ADD_FAILURE() << "no segment was left";
    return "";
  }
  // Its last change by a system call is long ago.
  static void Age(const char* path) {
    timespec times[2]{};
    times[0].tv_sec = times[1].tv_sec = time(nullptr) - 3 * 3600;
    EXPECT_EQ(utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW), 0);
  }
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  // Names of the files that a starting process leaves; its own is gone again.
  Names AfterAStart() {
    const int directory = open(directory_.c_str(), O_PATH | O_DIRECTORY);
    RemoveDeadSegments(directory, options_.retention_ns);
    close(directory);
    return Files();
  }

  std::string directory_;
  Options options_;
};

constexpr char kOtherName[] = "00000000000000aa-00000000000000bb.seg";

TEST_F(DeadSegments, AreRemovedWhenAProcessStarts) {
  const std::string dead = Leave();
  options_.retention_ns = kMinuteNs;  // of this process: the file has its own
  Segment segment;
  char error[256] = "";
  ASSERT_TRUE(segment.Create(options_, Nothing, error, sizeof(error))) << error;
  EXPECT_EQ(Files().size(), 1u);
  EXPECT_FALSE(Files().contains(dead));
}

TEST_F(DeadSegments, StayForTheirRetentionTimeAfterTheLastSignOfLife) {
  options_.retention_ns = kMinuteNs;
  const std::string young = Leave(kMinuteNs / 2);
  const std::string old = Leave(kMinuteNs * 3 / 2);
  EXPECT_EQ(AfterAStart(), Names{young});
}

TEST_F(DeadSegments, StayWhileTheirFileChanges) {
  options_.retention_ns = kMinuteNs;
  const std::string name = Leave();
  EXPECT_EQ(utimensat(AT_FDCWD, Path(name).c_str(), nullptr, 0), 0);  // now
  EXPECT_EQ(AfterAStart(), Names{name});
}

TEST_F(DeadSegments, AreNotThoseThatSomebodyHasLocked) {
  const std::string name = Leave();
  int locked[2], over[2];
  ASSERT_EQ(pipe(locked), 0);
  ASSERT_EQ(pipe(over), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(over[1]);
    struct flock lock {};
    lock.l_type = F_WRLCK;
    const int file = open(Path(name).c_str(), O_RDWR);
    char byte = fcntl(file, F_SETLK, &lock) == 0 ? 1 : 0;
    const bool is_told = write(locked[1], &byte, 1) == 1;
    _exit(read(over[0], &byte, 1) == 0 && is_told ? 0 : 1);
  }
  char byte = 0;
  ASSERT_EQ(read(locked[0], &byte, 1), 1);
  ASSERT_EQ(byte, 1);
  EXPECT_EQ(AfterAStart(), Names{name});
  close(over[0]);
  close(over[1]);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(AfterAStart(), Names{});
  for (const int end : locked) close(end);
}

// Another copy of the plugin may have made the segment: a close of any descriptor of it would drop
// its lock.
TEST_F(DeadSegments, AreNotThoseOfThisProcessWhoseLocksStay) {
  Segment segment;
  char error[256] = "";
  ASSERT_TRUE(segment.Create(options_, Nothing, error, sizeof(error))) << error;
  Age(segment.path());
  segment.header()->start_realtime_ns -= 3 * kMinuteNs;
  EXPECT_EQ(AfterAStart().size(), 1u);
  const pid_t child = fork();
  if (child == 0) {
    struct flock probe {};
    probe.l_type = F_RDLCK;
    const int file = open(segment.path(), O_RDONLY);
    _exit(fcntl(file, F_GETLK, &probe) == 0 && probe.l_type == F_WRLCK ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "the lock is gone";
}

TEST_F(DeadSegments, AreRegularFilesWithTheirNameAndOwner) {
  std::ofstream(Path("notes.txt")) << "text";
  std::ofstream(Path("short.seg")) << "text";
  ASSERT_EQ(symlink(Path("notes.txt").c_str(), Path(kOtherName).c_str()), 0);
  ASSERT_EQ(mkfifo(Path("00000000000000aa-00000000000000cc.seg").c_str(), 0600), 0);
  ASSERT_EQ(mkdir(Path("00000000000000aa-00000000000000dd.seg").c_str(), 0700), 0);
  for (const std::string& name : Files()) Age(Path(name).c_str());
  const Names before = Files();
  EXPECT_EQ(before.size(), 5u);
  EXPECT_EQ(AfterAStart(), before);
}

TEST_F(DeadSegments, AreNotThoseOfAnotherUser) {
  const std::string name = Leave();
  if (chown(Path(name).c_str(), 54321, static_cast<gid_t>(-1)) != 0)
    GTEST_SKIP() << "needs root, to give a file away";
  EXPECT_EQ(AfterAStart(), Names{name});
}

TEST_F(DeadSegments, MayBeIncomplete) {
  std::ofstream(Path(kOtherName)).flush();
  EXPECT_EQ(AfterAStart().size(), 0u);
  std::ofstream(Path(kOtherName)) << std::string(100'000, 'x');  // another layout
  Age(Path(kOtherName).c_str());
  EXPECT_EQ(AfterAStart(), Names{kOtherName});
}

TEST_F(DeadSegments, AreRemovedInParts) {
  for (int i = 0; i < 70; ++i) {
    char name[64];
    std::snprintf(name, sizeof(name), "%016x-%016x.seg", i, i);
    std::ofstream(Path(name)).flush();
  }
  EXPECT_EQ(AfterAStart().size(), 70 - kMostDeadSegments);
  EXPECT_EQ(AfterAStart().size(), 0u);
}

}  // namespace
}  // namespace nccl_exporter::plugin
