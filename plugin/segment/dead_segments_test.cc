// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

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
  // Plays `play` in a child, for this process must map no segment. Its exit status.
  template <typename Play>
  static int InAChild(const Play& play) {
    const pid_t child = fork();
    if (child == 0) _exit(play());
    int status = -1;
    waitpid(child, &status, 0);
    return status;
  }
  bool Create(Segment& segment) const {
    char error[256] = "";
    return segment.Create(options_, Nothing, error, sizeof(error)) && segment.Reserve(0, 1);
  }
  // The name of the segment that a process has left.
  std::string Leave() {
    const Names before = Files();
    const int status = InAChild([this] {
      Segment segment;
      return Create(segment) ? 0 : 1;
    });
    EXPECT_EQ(status, 0);
    for (const std::string& name : Files()) {
      if (!before.contains(name)) return name;
    }
    ADD_FAILURE() << "no segment was left";
    return "";
  }
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  mode_t ModeOf(const std::string& name) const {
    struct stat status {};
    EXPECT_EQ(stat(Path(name).c_str(), &status), 0);
    return status.st_mode & 07777;
  }
  // Names of the files that a starting process leaves; its own is gone again.
  Names AfterAStart() const {
    const int directory = open(directory_.c_str(), O_PATH | O_DIRECTORY);
    RemoveDeadSegments(directory, options_.retention_ns);
    close(directory);
    return Files();
  }

  std::string directory_;
  Options options_;
};

constexpr char kOtherName[] = "00000000000000aa-00000000000000bb.seg";

TEST_F(DeadSegments, AreMarkedWhenAProcessStartsAndRemovedWhenALaterOneDoes) {
  const std::string dead = Leave();
  EXPECT_EQ(ModeOf(dead), 0644u);
  const std::string next = Leave();
  EXPECT_EQ(ModeOf(dead), 0444u);
  const std::string third = Leave();
  EXPECT_EQ(Files(), (Names{next, third}));
}

TEST_F(DeadSegments, StayForTheRetentionTimeBeforeAndAfterTheyAreMarked) {
  const std::string name = Leave();
  options_.retention_ns = kMinuteNs;
  EXPECT_EQ(AfterAStart(), Names{name});
  EXPECT_EQ(ModeOf(name), 0644u);
  options_.retention_ns = 1;
  EXPECT_EQ(AfterAStart(), Names{name});
  EXPECT_EQ(ModeOf(name), 0444u);
  options_.retention_ns = kMinuteNs;
  EXPECT_EQ(AfterAStart(), Names{name});
}

TEST_F(DeadSegments, StayForTheRetentionTimeOfTheirWriter) {
  options_.retention_ns = kMinuteNs;
  const std::string name = Leave();
  options_.retention_ns = 1;
  EXPECT_EQ(AfterAStart(), Names{name});
  EXPECT_EQ(AfterAStart(), Names{name});
}

// A process that does `begin` and then nothing, until this object is gone.
class IdleProcess {
 public:
  template <typename Begin>
  explicit IdleProcess(const Begin& begin) {
    int begun[2];
    EXPECT_EQ(pipe(begun) + pipe(over_), 0);
    child_ = fork();
    if (child_ == 0) {
      char byte = begin() ? 1 : 0;
      close(over_[1]);
      const bool is_told = write(begun[1], &byte, 1) == 1;
      _exit(is_told && read(over_[0], &byte, 1) == 0 ? 0 : 1);
    }
    char byte = 0;
    EXPECT_EQ(read(begun[0], &byte, 1), 1);
    EXPECT_EQ(byte, 1);
    for (const int end : begun) close(end);
  }
  ~IdleProcess() {
    for (const int end : over_) close(end);
    waitpid(child_, nullptr, 0);
  }

 private:
  int over_[2];
  pid_t child_ = 0;
};

TEST_F(DeadSegments, AreNotThoseThatSomebodyHasLocked) {
  const std::string name = Leave();
  {
    const IdleProcess holder([&] {
      struct flock lock {};
      lock.l_type = F_WRLCK;
      return fcntl(open(Path(name).c_str(), O_RDWR), F_SETLK, &lock) == 0;
    });
    EXPECT_EQ(AfterAStart(), Names{name});
    EXPECT_EQ(AfterAStart(), Names{name});
  }
  EXPECT_EQ(AfterAStart(), Names{name});
  EXPECT_EQ(AfterAStart(), Names{});
}

// Regression: a job that had closed a descriptor of the file, and then was idle for the retention
// time, lost its segment.
TEST_F(DeadSegments, AreNotThoseOfALivingProcessThatHasClosedAllDescriptors) {
  {
    const IdleProcess idle([this] {
      static Segment segment;
      if (!Create(segment)) return false;
      const int file = open(segment.path(), O_RDONLY);
      if (close(file) != 0) return false;
      struct stat segment_status {
      }, status{};
      if (stat(segment.path(), &segment_status) != 0) return false;
      for (int other = 3; other < 256; ++other) {
        if (fstat(other, &status) == 0 && status.st_ino == segment_status.st_ino) close(other);
      }
      return true;
    });
    EXPECT_EQ(AfterAStart().size(), 1u);
    EXPECT_EQ(AfterAStart().size(), 1u);
    EXPECT_EQ(ModeOf(*Files().begin()), 0644u);
  }
  EXPECT_EQ(AfterAStart().size(), 1u);
  EXPECT_EQ(AfterAStart().size(), 0u);
}

// Another copy of the plugin may have made the segment: a close of any descriptor of it would drop
// its lock.
TEST_F(DeadSegments, AreLeftAloneByAProcessThatHasASegment) {
  const std::string dead = Leave();
  const int status = InAChild([this] {
    Segment segment;
    if (!Create(segment)) return 1;  // marks the dead one
    AfterAStart();
    if (AfterAStart().size() != 2) return 2;
    return InAChild([&] {
      struct flock probe {};
      probe.l_type = F_RDLCK;
      const int file = open(segment.path(), O_RDONLY);
      return fcntl(file, F_GETLK, &probe) == 0 && probe.l_type == F_WRLCK ? 0 : 1;
    });
  });
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(AfterAStart().contains(dead));
}

TEST_F(DeadSegments, AreRegularFilesWithTheirNameAndOwner) {
  std::ofstream(Path("notes.txt")) << "text";
  std::ofstream(Path("short.seg")) << "text";
  ASSERT_EQ(symlink(Path("notes.txt").c_str(), Path(kOtherName).c_str()), 0);
  ASSERT_EQ(mkfifo(Path("00000000000000aa-00000000000000cc.seg").c_str(), 0600), 0);
  ASSERT_EQ(mkdir(Path("00000000000000aa-00000000000000dd.seg").c_str(), 0700), 0);
  const Names before = Files();
  EXPECT_EQ(before.size(), 5u);
  AfterAStart();
  EXPECT_EQ(AfterAStart(), before);
}

TEST_F(DeadSegments, AreNotThoseOfAnotherUser) {
  const std::string name = Leave();
  if (chown(Path(name).c_str(), 54321, static_cast<gid_t>(-1)) != 0)
    GTEST_SKIP() << "needs root, to give a file away";
  AfterAStart();
  EXPECT_EQ(AfterAStart(), Names{name});
}

TEST_F(DeadSegments, MayBeIncomplete) {
  std::ofstream(Path(kOtherName)).flush();
  EXPECT_EQ(AfterAStart().size(), 1u);
  EXPECT_EQ(AfterAStart().size(), 0u);
}

TEST_F(DeadSegments, AreNotFilesOfAnotherLayout) {
  std::ofstream(Path(kOtherName)) << std::string(100'000, '\1');
  AfterAStart();
  EXPECT_EQ(AfterAStart(), Names{kOtherName});
  EXPECT_EQ(ModeOf(kOtherName), 0644u);
}

TEST_F(DeadSegments, AreMarkedAndRemovedInParts) {
  for (int i = 0; i < 70; ++i) {
    char name[64];
    std::snprintf(name, sizeof(name), "%016x-%016x.seg", i, i);
    std::ofstream(Path(name)).flush();
  }
  int starts = 0;
  for (size_t left = 70; left != 0 && starts < 10; ++starts) {
    const size_t now = AfterAStart().size();
    EXPECT_LE(left - now, kMostDeadSegments);
    left = now;
  }
  EXPECT_EQ(Files().size(), 0u);
  EXPECT_LE(starts, 4);
}

}  // namespace
}  // namespace nccl_exporter::plugin
