// SPDX-License-Identifier: Apache-2.0
// Liveness with real processes and real locks.
#include "collector/segments/liveness.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "collector/segments/file_descriptor.h"
#include "collector/testing/lock_holder.h"
#include "collector/testing/scratch_directory.h"

namespace nccl_exporter::collector {
namespace {

class LivenessTest : public testing::Test {
 protected:
  LivenessTest() { std::ofstream(path_) << "segment"; }

  ScratchDirectory directory_;
  const std::string path_ = directory_.File("x.seg");
};

TEST_F(LivenessTest, SeesTheWritersLockUntilItIsKilled) {
  const FileDescriptor file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(FindWriter(file.number()).is_alive);
  LockHolder writer(path_);
  EXPECT_TRUE(FindWriter(file.number()).is_alive);
  writer.Kill();
  EXPECT_FALSE(FindWriter(file.number()).is_alive);
}

TEST_F(LivenessTest, SeesTheLockFromAForkedReader) {
  const FileDescriptor file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  LockHolder writer(path_);
  const pid_t reader = ::fork();
  if (reader == 0) ::_exit(FindWriter(file.number()).is_alive ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(reader, &status, 0), reader);
  EXPECT_EQ(status, 0);
}

TEST_F(LivenessTest, DoesNotTakeAnotherReadersLockForAWriter) {
  const FileDescriptor file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  struct flock lock {};
  lock.l_type = F_RDLCK;
  ASSERT_EQ(::fcntl(file.number(), F_SETLK, &lock), 0);
  const pid_t reader = ::fork();  // the lock stays with the parent
  if (reader == 0) ::_exit(FindWriter(file.number()).is_alive ? 1 : 0);
  int status = -1;
  ASSERT_EQ(::waitpid(reader, &status, 0), reader);
  EXPECT_EQ(status, 0);
}

TEST_F(LivenessTest, TakesAWriterForAliveWhereItCannotTell) {
  EXPECT_TRUE(FindWriter(-1).is_alive);
}

TEST_F(LivenessTest, SeesAWriterStopAndGoOn) {
  const FileDescriptor file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(IsStopped(FindWriter(file.number())), std::nullopt);
  LockHolder writer(path_);
  EXPECT_EQ(IsStopped(FindWriter(file.number())), false);
  writer.Stop();
  EXPECT_EQ(IsStopped(FindWriter(file.number())), true);
  writer.Continue();
  EXPECT_EQ(IsStopped(FindWriter(file.number())), false);
}

// A line of /proc/PID/stat.
std::string Stat(const std::string& state, int flags, uint64_t start, uint64_t stack) {
  return "7 (a) (b c) " + state + " 1 7 7 0 -1 " + std::to_string(flags) +
         " 0 0 0 0 1 2 0 0 20 0 3 0 " + std::to_string(start) +
         " 4096 100 18446744073709551615 1 1 " + std::to_string(stack) + " 0 0 0 0 0 0 0\n";
}

TEST_F(LivenessTest, MarksAProcessByItsStartAndItsStack) {
  EXPECT_EQ(MarkIn(Stat("S", 0x400000, 5000, 140737)), (ProcessMark{5000, 140737}));
  EXPECT_EQ(MarkIn(Stat("T", 0, 5000, 0)), (ProcessMark{5000, 0}));
  for (const std::string& stat :
       {Stat("Z", 0, 5000, 0), Stat("X", 0, 5000, 0), Stat("R", 4, 5000, 0), Stat("R", 0, 0, 0),
        std::string("7 (a) S 1"), std::string()})
    EXPECT_EQ(MarkIn(stat), std::nullopt) << stat;
}

TEST_F(LivenessTest, TheMarkOfAProcessStaysUntilItEnds) {
  LockHolder writer(path_);
  const pid_t pid = writer.pid();
  const std::optional<ProcessMark> mark = MarkOf(pid);
  ASSERT_TRUE(mark);
  writer.Stop();
  EXPECT_EQ(MarkOf(pid), mark);
  writer.Kill();
  EXPECT_EQ(MarkOf(pid), std::nullopt);
  EXPECT_EQ(MarkOf(0), std::nullopt);
}

TEST_F(LivenessTest, ReadsTheOffsetOfTheMonotonicClock) {
  EXPECT_EQ(MonotonicOffset("monotonic           0         0\nboottime            0         0\n"),
            0);
  EXPECT_EQ(MonotonicOffset("monotonic      100000         5\nboottime            0         0\n"),
            100'000'000'000'005);
  EXPECT_EQ(MonotonicOffset("monotonic       -1000 500000000\n"), -999'500'000'000);
  for (const char* text : {"", "boottime 5 0\n", "monotonic x", "monotonic 99999999999999 0",
                           "monotonic 1 -1", "monotonic 1 1000000000"})
    EXPECT_EQ(MonotonicOffset(text), 0) << text;
}

TEST_F(LivenessTest, AProcessInOurTimeNamespaceHasOurClock) {
  EXPECT_EQ(ClockOffsetOf({.is_alive = true, .pid = ::getpid()}).value_or(0), 0);
  EXPECT_EQ(ClockOffsetOf({.is_alive = true, .pid = 0}), std::nullopt);
}

}  // namespace
}  // namespace nccl_exporter::collector
