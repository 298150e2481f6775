// SPDX-License-Identifier: Apache-2.0
// The dead: for how long their counts are served, by this collector, a second one and one that was
// started again, and what becomes of their files.
#include <linux/sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "collector/testing/lock_holder.h"
#include "collector/testing/table_fixture.h"

namespace nccl_exporter::collector {
namespace {

using RetentionTest = TableFixture;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_F(RetentionTest, ServesTheLastCountsOfAKilledProcessForTheRetentionTimeThenUnlinks) {
  SegmentWith(1).WriteTo(Path("x.seg"));
  LockHolder writer(Path("x.seg"));
  EXPECT_TRUE(Snapshot().processes.at(0).is_alive);
  SegmentWith(2).WriteTo(Path("x.seg"));  // between the last scrape and the end
  writer.Kill();
  for (const seconds time : {seconds(1), kRetention}) {
    const NodeSnapshot snapshot = Snapshot();
    ASSERT_EQ(snapshot.processes.size(), 1u);
    EXPECT_FALSE(snapshot.processes[0].is_alive);
    EXPECT_EQ(OperationsOf(snapshot.processes[0]), 2u);
    EXPECT_EQ(snapshot.segments.exited, 1u);
    Advance(time);
  }
  EXPECT_TRUE(Snapshot().processes.empty());
  EXPECT_FALSE(Exists("x.seg"));
}

TEST_F(RetentionTest, NeverEndsTheRetentionOfALivingProcessHoweverLongItIsIdle) {
  SegmentWith(1).WriteTo(Path("x.seg"));
  SetAge("x.seg", seconds(100'000));
  const LockHolder writer(Path("x.seg"));
  Snapshot();
  Advance(seconds(100'000));
  EXPECT_EQ(Snapshot().segments.live, 1u);
  EXPECT_TRUE(Exists("x.seg"));
}

// Regression: any close of any descriptor of the file in the job drops its lock. Then the process
// was dead, and after the retention time invisible.
TEST_F(RetentionTest, TakesAProcessWithoutALockForAliveWhileItsCountersGrow) {
  SegmentWriterV1 writer = SegmentWith(1);
  const auto operate = [&](uint64_t operations) {
    writer.Put(0, 4,
               FunctionV1{.last_start_ns = static_cast<uint64_t>(now_.monotonic_ns),
                          .operations = {operations}});
    writer.WriteTo(Path("x.seg"));
  };
  operate(1);
  {
    const LockHolder holder(Path("x.seg"));
    EXPECT_TRUE(Snapshot().processes.at(0).is_alive);
  }
  EXPECT_FALSE(Snapshot().processes.at(0).is_alive) << "nothing tells it from a dead one yet";
  for (uint64_t operations = 2; operations < 20; ++operations) {
    Advance(kRetention / 2);
    operate(operations);
    const NodeSnapshot snapshot = Snapshot();
    const ProcessSnapshot& process = snapshot.processes.at(0);
    EXPECT_TRUE(process.is_alive);
    EXPECT_TRUE(process.has_lost_lock);
    EXPECT_EQ(OperationsOf(process), operations);
    ASSERT_EQ(snapshot.segment_troubles.size(), 1u);
    EXPECT_EQ(snapshot.segment_troubles[0].error, SegmentError::kLockLost);
    EXPECT_EQ(snapshot.segment_troubles[0].present, 1u);
  }
  Advance(kRetention + seconds(2));
  const NodeSnapshot ended = Snapshot();
  EXPECT_FALSE(ended.processes.at(0).is_alive) << "it stands still for the retention time";
  EXPECT_EQ(ended.segment_troubles.at(0).present, 0u);
  Advance(kRetention + seconds(2));
  EXPECT_TRUE(Snapshot().processes.empty());
  EXPECT_FALSE(Exists("x.seg"));
}

TEST_F(RetentionTest, ALockThatIsTakenAgainEndsThat) {
  SegmentWriterV1 writer = SegmentWith(1);
  const auto operate = [&] {
    writer.Put(
        0, 4,
        FunctionV1{.last_start_ns = static_cast<uint64_t>(now_.monotonic_ns), .operations = {1}});
    writer.WriteTo(Path("x.seg"));
  };
  operate();
  Snapshot();
  Advance(seconds(2));
  operate();
  EXPECT_TRUE(Snapshot().processes.at(0).has_lost_lock);
  LockHolder holder(Path("x.seg"));
  Advance(seconds(2));
  operate();
  EXPECT_FALSE(Snapshot().processes.at(0).has_lost_lock);
  holder.Kill();
  Advance(seconds(2));
  EXPECT_FALSE(Snapshot().processes.at(0).is_alive) << "what it did with the lock is no sign";
}

// Regression: without its lock a process that was idle had ended, and its file was removed.
class LostLockTest : public TableFixture {
 protected:
  LostLockTest() { SegmentWith(1).WriteTo(Path("x.seg")); }
  // Another process, with a PID that is free; -1 where that is not allowed.
  static pid_t ForkAs(pid_t pid) {
    clone_args arguments{};
    arguments.exit_signal = SIGCHLD;
    arguments.set_tid = reinterpret_cast<uint64_t>(&pid);
    arguments.set_tid_size = 1;
    const auto child = static_cast<pid_t>(::syscall(SYS_clone3, &arguments, sizeof(arguments)));
    if (child != 0) return child;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (true) ::pause();
  }
};

TEST_F(LostLockTest, AProcessThatIsSeenLivesHoweverLongItIsIdle) {
  LockHolder writer(Path("x.seg"));
  EXPECT_TRUE(Snapshot().processes.at(0).is_alive);
  writer.LoseLock();
  for (int i = 0; i < 4; ++i) {
    const NodeSnapshot snapshot = Snapshot();
    ASSERT_EQ(snapshot.processes.size(), 1u);
    EXPECT_TRUE(snapshot.processes[0].is_alive);
    EXPECT_TRUE(snapshot.processes[0].has_lost_lock);
    EXPECT_EQ(snapshot.processes[0].is_stopped, false);
    EXPECT_EQ(snapshot.segments.live, 1u);
    EXPECT_EQ(snapshot.segment_troubles.at(0).error, SegmentError::kLockLost);
    EXPECT_EQ(snapshot.segment_troubles.at(0).present, 1u);
    Advance(kRetention);
  }
  EXPECT_TRUE(Exists("x.seg"));
  writer.Stop();
  EXPECT_EQ(Snapshot().processes.at(0).is_stopped, true);
}

TEST_F(LostLockTest, AProcessThatHasNotBeenReadYetLives) {
  LockHolder writer(Path("x.seg"));
  Refresh(table_, now_);
  writer.LoseLock();
  EXPECT_TRUE(Snapshot().processes.at(0).is_alive);
}

// A plugin that fails at the start gives its file up.
TEST_F(LostLockTest, AFileThatNeverBecameASegmentHasNoProcess) {
  SegmentWriterV1(2).WriteTo(Path("y.seg"));
  LockHolder writer(Path("y.seg"));
  EXPECT_EQ(Snapshot().segments.starting, 1u);
  writer.LoseLock();
  Snapshot();
  std::filesystem::remove(Path("y.seg"));
  Advance(kRescanInterval);
  EXPECT_EQ(Snapshot().segments.starting, 0u);
}

TEST_F(LostLockTest, ItsEndIsNoticedAtOnce) {
  LockHolder writer(Path("x.seg"));
  Snapshot();
  writer.LoseLock();
  Advance(seconds(2));
  SegmentWriterV1 segment = SegmentWith(1);
  segment.Put(
      0, 4,
      FunctionV1{.last_start_ns = static_cast<uint64_t>(now_.monotonic_ns), .operations = {2}});
  segment.WriteTo(Path("x.seg"));
  EXPECT_TRUE(Snapshot().processes.at(0).is_alive);
  writer.Kill();
  for (int i = 0; i < 3; ++i) {
    Advance(seconds(2));
    const NodeSnapshot snapshot = Snapshot();
    EXPECT_FALSE(snapshot.processes.at(0).is_alive);
    EXPECT_EQ(OperationsOf(snapshot.processes[0]), 2u);
    EXPECT_EQ(snapshot.segment_troubles.at(0).present, 0u);
  }
  Advance(kRetention);
  EXPECT_TRUE(Snapshot().processes.empty());
  EXPECT_FALSE(Exists("x.seg"));
}

TEST_F(LostLockTest, AnotherProcessWithItsPidIsNotTakenForIt) {
  LockHolder writer(Path("x.seg"));
  Snapshot();
  writer.LoseLock();
  EXPECT_TRUE(Snapshot().processes.at(0).is_alive);
  const pid_t pid = writer.pid();
  ::usleep(20'000);  // start times are multiples of 10 ms
  writer.Kill();
  const pid_t other = ForkAs(pid);
  if (other < 0) GTEST_SKIP() << "needs root, to choose a PID";
  ASSERT_EQ(other, pid);
  Advance(kLastStateInterval);
  EXPECT_FALSE(Snapshot().processes.at(0).is_alive);
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
}

// As after exec: it has a segment of its own then.
TEST_F(LostLockTest, AProcessThatHasLockedAnotherSegmentIsNotTakenForTheWriterOfThis) {
  SegmentWith(1, 2).WriteTo(Path("y.seg"));
  LockHolder writer(Path("x.seg"), Path("y.seg"));
  EXPECT_EQ(Snapshot().segments.live, 2u);
  writer.LoseLock();
  const NodeSnapshot snapshot = Snapshot();
  EXPECT_EQ(snapshot.segments.live, 1u);
  EXPECT_EQ(snapshot.segments.exited, 1u);
}

// The PID in the file is a claim of its writer.
TEST_F(LostLockTest, AProcessThatNobodySawWithTheLockIsNotLookedFor) {
  SegmentWith(1, static_cast<uint64_t>(::getpid())).WriteTo(Path("x.seg"));
  EXPECT_FALSE(Snapshot().processes.at(0).is_alive);
}

// Regression: while a time of creation was in the future, since the clock was set back, each
// snapshot moved it to its own time.
TEST_F(RetentionTest, LeavesATimeOfCreationWhereItWasPutFirst) {
  SegmentWriterV1 writer(3);
  writer.Put(ProcessV1{.uid = ::getuid()});
  const int64_t hour_ns = 3'600'000'000'000;
  writer.Put(
      0, CommunicatorV1{.created_realtime_ns = static_cast<uint64_t>(now_.realtime_ns + hour_ns)});
  writer.Put(
      1, CommunicatorV1{.created_realtime_ns = static_cast<uint64_t>(now_.realtime_ns - hour_ns)});
  writer.Publish();
  writer.WriteTo(Path("x.seg"));
  const LockHolder holder(Path("x.seg"));
  const int64_t first_ns = now_.realtime_ns;
  for (int i = 0; i < 3; ++i) {
    const NodeSnapshot snapshot = Snapshot();
    EXPECT_EQ(snapshot.processes.at(0).communicators.at(0).created_realtime_ns, first_ns);
    EXPECT_EQ(snapshot.processes.at(0).communicators.at(1).created_realtime_ns, first_ns - hour_ns);
    Advance(std::chrono::minutes(50));
  }
}

// Regression: times of a job in a time namespace that the daemon does not see were taken for now.
TEST_F(RetentionTest, LearnsAClockThatIsAheadFromTheTimesInTheFile) {
  const int64_t ahead_ns = 100'000'000'000'000;
  SegmentWriterV1 writer = SegmentWith(1);
  writer.Put(0, 4,
             FunctionV1{.last_start_ns = static_cast<uint64_t>(now_.monotonic_ns + ahead_ns),
                        .operations = {1}});
  writer.WriteTo(Path("x.seg"));
  const LockHolder holder(Path("x.seg"));
  const int64_t last_ns = now_.monotonic_ns;
  Snapshot();
  for (int i = 0; i < 2; ++i) {
    Advance(seconds(60));
    const NodeSnapshot snapshot = Snapshot();
    EXPECT_EQ(snapshot.processes.at(0).communicators.at(0).last_progress_monotonic_ns, last_ns);
    ASSERT_EQ(snapshot.segment_troubles.size(), 1u);
    EXPECT_EQ(snapshot.segment_troubles[0].error, SegmentError::kForeignClock);
    EXPECT_EQ(snapshot.segment_troubles[0].count, 1u);
    EXPECT_EQ(snapshot.segment_troubles[0].present, 1u);
  }
}

TEST_F(RetentionTest, UnlinksWithoutAnySnapshot) {
  SegmentWith(1).WriteTo(Path("x.seg"));
  Refresh(table_, now_);
  EXPECT_TRUE(Exists("x.seg"));
  Advance(kRetention + seconds(2));
  Refresh(table_, now_);
  EXPECT_FALSE(Exists("x.seg"));
}

TEST_F(RetentionTest, StartedAfterTheEndServesOnlyTheRestOfTheRetentionTime) {
  SegmentWith(5).WriteTo(Path("x.seg"));
  SetAge("x.seg", kRetention - seconds(60));
  EXPECT_EQ(OperationsOf(Snapshot().processes.at(0)), 5u);
  Advance(seconds(50));
  EXPECT_EQ(Snapshot().processes.size(), 1u);
  Advance(seconds(20));
  EXPECT_TRUE(Snapshot().processes.empty());
  EXPECT_FALSE(Exists("x.seg"));
}

TEST_F(RetentionTest, RestartedAgainAndAgainComesToTheSameEnd) {
  SegmentWith(1).WriteTo(Path("x.seg"));
  SetAge("x.seg", seconds(20));
  int served = 0;
  for (seconds time(0); time < 2 * kRetention; time += seconds(50)) {
    SegmentTable restarted({scratch_.path()}, kRetention);
    served += SnapshotOf(restarted, now_).processes.size() == 1;
    Advance(seconds(50));
  }
  EXPECT_EQ(served, 6);
  EXPECT_FALSE(Exists("x.seg"));
}

TEST_F(RetentionTest, TakesTheLastOperationForASignOfLifeWhereTheFileLooksOlder) {
  SegmentWriterV1 writer = SegmentWith(1);
  const uint64_t start_ns = static_cast<uint64_t>(now_.monotonic_ns) -
                            1'000'000'000;  // stores to a mapping leave no trace
  writer.Put(0, 4, FunctionV1{.last_start_ns = start_ns, .operations = {1}});
  writer.WriteTo(Path("x.seg"));
  SetAge("x.seg", seconds(100'000));
  Advance(kRetention - seconds(2));
  EXPECT_EQ(Snapshot().processes.size(), 1u);
  Advance(seconds(2));
  EXPECT_TRUE(Snapshot().processes.empty());
}

TEST_F(RetentionTest, EndsAlsoForAFileFromTheFuture) {
  SegmentWith(1).WriteTo(Path("x.seg"));
  SetAge("x.seg", seconds(-100'000));
  EXPECT_EQ(Snapshot().processes.size(), 1u);
  Advance(kRetention + seconds(1));
  EXPECT_TRUE(Snapshot().processes.empty());
  EXPECT_FALSE(Exists("x.seg"));
}

TEST_F(RetentionTest, RestartLosesNoCount) {
  SegmentWith(1).WriteTo(Path("x.seg"));
  const LockHolder writer(Path("x.seg"));
  Snapshot();
  SegmentWith(7).WriteTo(Path("x.seg"));
  SegmentTable restarted({scratch_.path()}, kRetention);
  EXPECT_EQ(OperationsOf(SnapshotOf(restarted, now_).processes.at(0)), 7u);
}

TEST_F(RetentionTest, UnlinksHalfWrittenAndBrokenFilesThatNobodyHoldsWhenTheyAreOld) {
  SegmentWriterV1(2).WriteTo(Path("starting.seg"));
  std::ofstream(Path("empty.seg"));
  std::ofstream(Path("text.seg")) << "certainly no segment";
  SegmentWriterV1(2).WriteTo(Path("held.seg"));
  const LockHolder writer(Path("held.seg"));
  const NodeSnapshot snapshot = Snapshot();
  EXPECT_EQ(snapshot.segments.starting, 3u);
  EXPECT_EQ(snapshot.segments.unusable, 1u);
  Advance(kRetention + seconds(2));
  EXPECT_EQ(Snapshot().segments.starting, 0u);
  EXPECT_EQ(Snapshot().segments.unusable, 1u) << "the one that is held, see kLongestStart";
  for (const char* name : {"starting.seg", "empty.seg", "text.seg"})
    EXPECT_FALSE(Exists(name)) << name;
  EXPECT_TRUE(Exists("held.seg"));
}

// Regression: a user could have the collector unlink thousands of files in one go, while everybody
// waited.
TEST_F(RetentionTest, UnlinksOnlySoManyFilesOfAUserAtOnceAndKeepsNoOtherWaiting) {
  constexpr size_t kFiles = 2 * kMaxRemovalsPerUser + 10;
  for (size_t i = 0; i < kFiles; ++i) std::ofstream(Path(std::to_string(i) + ".seg"));
  std::ofstream(Path("others.seg"));
  if (::chown(Path("others.seg").c_str(), 1001, static_cast<gid_t>(-1)) != 0) {
    GTEST_SKIP() << "needs root, to give files to other users";
  }
  EXPECT_EQ(Snapshot().segments.starting, kFiles + 1);
  Advance(kRetention + seconds(2));
  SegmentLooks looks = table_.Look(now_);
  EXPECT_FALSE(Exists("others.seg"));
  EXPECT_EQ(table_.Read(std::move(looks), now_).segments.starting, kFiles - kMaxRemovalsPerUser);
  for (int i = 0; i < 2; ++i) looks = table_.Look(now_);
  EXPECT_EQ(table_.Read(std::move(looks), now_).segments.starting, 0u);
  for (size_t i = 0; i < kFiles; ++i) EXPECT_FALSE(Exists(std::to_string(i) + ".seg"));
}

TEST_F(RetentionTest, ReadsADeadFileAgainWhenItIsChanged) {
  std::ofstream(Path("x.seg"));  // a program begins to copy a segment into the directory
  EXPECT_EQ(Snapshot().segments.starting, 1u);
  SegmentWith(3).WriteTo(Path("x.seg"));
  EXPECT_EQ(OperationsOf(Snapshot().processes.at(0)), 3u);
}

// The user's next process does this to the files of the dead.
TEST_F(RetentionTest, EndsNoLaterForAFileThatBecomesReadOnly) {
  SegmentWith(1).WriteTo(Path("x.seg"));
  EXPECT_EQ(Snapshot().segments.exited, 1u);
  Advance(kRetention / 2);
  std::filesystem::permissions(Path("x.seg"), std::filesystem::perms(0444));
  EXPECT_EQ(Snapshot().segments.exited, 1u);
  Advance(kRetention / 2 + seconds(1));
  EXPECT_TRUE(Snapshot().processes.empty());
  EXPECT_FALSE(Exists("x.seg"));
}

TEST_F(RetentionTest, LeavesOutAFinalizedCommunicatorOfADeadProcessWhenItsTimeIsOver) {
  SegmentWriterV1 writer = SegmentWith(1);
  const int64_t closed_ns = now_.monotonic_ns - std::chrono::nanoseconds(seconds(100)).count();
  writer.Put(0,
             CommunicatorV1{.state = 3, .closed_monotonic_ns = static_cast<uint64_t>(closed_ns)});
  writer.WriteTo(Path("x.seg"));
  EXPECT_EQ(Snapshot().processes.at(0).communicators.size(), 1u);
  Advance(kRetention - seconds(99));
  EXPECT_EQ(Snapshot().processes.at(0).communicators.size(), 0u);
}

TEST_F(RetentionTest, SeesAnOperationOfADeadProcessCompleteByQuiet) {
  SegmentWriterV1 writer = SegmentWith(1);
  writer.Put(0, InFlightV1{.ticket = 1,
                           .function = 4,
                           .parts_announced = 1,
                           .parts_done = 1,
                           .last_part_ns = static_cast<uint64_t>(now_.monotonic_ns)});
  writer.WriteTo(Path("x.seg"));
  EXPECT_EQ(Snapshot().processes.at(0).communicators.at(0).in_flight.size(), 1u);
  Advance(milliseconds(1001));
  EXPECT_EQ(Snapshot().processes.at(0).communicators.at(0).in_flight.size(), 0u);
  EXPECT_EQ(Snapshot().processes.at(0).communicators.at(0).completed_sequence, 1u);
}

TEST_F(RetentionTest, StillTellsWhatAKilledProcessWasDoing) {
  SegmentWriterV1 writer = SegmentWith(1);
  writer.Put(
      0, InFlightV1{
             .ticket = 1, .function = 4, .sequence = 17, .parts_announced = 4, .parts_done = 1});
  writer.WriteTo(Path("x.seg"));
  LockHolder(Path("x.seg")).Kill();
  Advance(seconds(60));
  EXPECT_EQ(Snapshot().processes.at(0).communicators.at(0).in_flight.at(0).sequence, 17u);
}

TEST_F(RetentionTest, TwoCollectorsDoNotDisturbEachOther) {
  SegmentWith(1).WriteTo(Path("x.seg"));
  SegmentTable hasty({scratch_.path()}, kRetention / 2);
  Snapshot();
  SnapshotOf(hasty, now_);
  Advance(kRetention / 2 + seconds(2));
  EXPECT_TRUE(SnapshotOf(hasty, now_).processes.empty());
  EXPECT_FALSE(Exists("x.seg"));
  EXPECT_EQ(Snapshot().processes.size(), 1u) << "served to the end of its own retention time";
  Advance(kRetention / 2);
  const NodeSnapshot snapshot = Snapshot();
  EXPECT_TRUE(snapshot.processes.empty());
  EXPECT_EQ(Count(snapshot, SegmentError::kUnlinkFailed), 0u);
  EXPECT_EQ(Count(snapshot, SegmentError::kOpenFailed), 0u);
}

TEST_F(RetentionTest, LeavesAFileThatTookTheNameOfADeadOne) {
  SegmentWith(1, 1).WriteTo(Path("x.seg"));
  Snapshot();
  SegmentWith(1, 2).WriteTo(Path("y.tmp"));
  std::filesystem::rename(Path("y.tmp"), Path("x.seg"));
  const LockHolder writer(Path("x.seg"));
  Advance(kRetention + seconds(2));
  EXPECT_EQ(Snapshot().processes.at(0).pid, 2u);
  EXPECT_TRUE(Exists("x.seg"));
}

TEST_F(RetentionTest, CountsAFileThatCannotBeUnlinkedOnceAndTriesAgain) {
  SegmentWith(1).WriteTo(Path("x.seg"));
  Snapshot();
  Advance(kRetention + seconds(2));
  for (int i = 0; i < 3; ++i) {
    const NodeSnapshot snapshot = SnapshotWithDescriptors(0);
    EXPECT_TRUE(snapshot.processes.empty());
    EXPECT_EQ(Count(snapshot, SegmentError::kUnlinkFailed), 1u);
    Advance(kRescanInterval);
  }
  EXPECT_TRUE(Exists("x.seg"));
  Advance(kRescanInterval);
  const NodeSnapshot snapshot = Snapshot();
  EXPECT_TRUE(snapshot.processes.empty()) << "it does not come back";
  EXPECT_FALSE(Exists("x.seg"));
}

// Two ranks of communicator 77: the first is killed, the second waits for it in an AllReduce.
class WaitingRankTest : public TableFixture {
 protected:
  static SegmentWriterV1 Rank(uint64_t rank) {
    SegmentWriterV1 writer = SegmentWith(1, rank + 1);
    writer.Put(0, CommunicatorV1{.id = 77, .ranks = 2, .rank = rank});
    writer.Put(0, 4, FunctionV1{.operations = {1}});
    return writer;
  }
  void SetUp() override { Rank(0).WriteTo(Path("dead.seg")); }
  InFlightV1 Waiting() const {
    return {.ticket = 1,
            .function = 4,
            .sequence = 1,
            .start_ns = static_cast<uint64_t>(now_.monotonic_ns)};
  }
  void Kill() {
    LockHolder dead(Path("dead.seg"));
    Snapshot();
    dead.Kill();
    Snapshot();
  }
  // Every minute, as a thread of the collector would.
  void Wait(seconds time) {
    for (seconds passed(0); passed < time; passed += seconds(60)) {
      Advance(seconds(60));
      Refresh(table_, now_);
    }
  }
};

TEST_F(WaitingRankTest, ADeadRankStaysKnownForAsLongAsALivingOneWaitsForIt) {
  SegmentWriterV1 survivor = Rank(1);
  survivor.Put(0, Waiting());
  survivor.WriteTo(Path("survivor.seg"));
  const LockHolder alive(Path("survivor.seg"));
  Kill();
  Wait(seconds(7200));
  const NodeSnapshot snapshot = Snapshot();
  ASSERT_EQ(snapshot.processes.size(), 2u);
  EXPECT_EQ(snapshot.segments.exited, 1u);
  EXPECT_TRUE(Exists("dead.seg")) << "a daemon that is started again must find it";
  SegmentTable restarted({scratch_.path()}, kRetention);
  EXPECT_EQ(SnapshotOf(restarted, now_).processes.size(), 2u);

  Rank(1).WriteTo(Path("survivor.seg"));  // has given up
  Wait(seconds(60));
  EXPECT_EQ(Snapshot().processes.size(), 1u);
  EXPECT_FALSE(Exists("dead.seg"));
}

// Regresses: a rank that had replaced another was of no job that anyone waited in.
TEST_F(WaitingRankTest, ADeadRankStaysKnownWhoseFirstCommunicatorIsAnother) {
  SegmentWriterV1 survivor = Rank(1), dead = Rank(0);
  survivor.PutWord(SegmentWriterV1::kFirstCommunicator, 76);
  survivor.Put(0, Waiting());
  survivor.WriteTo(Path("survivor.seg"));
  dead.PutWord(SegmentWriterV1::kFirstCommunicator, 77);
  dead.WriteTo(Path("dead.seg"));
  const LockHolder alive(Path("survivor.seg"));
  Kill();
  Wait(seconds(7200));
  const NodeSnapshot snapshot = Snapshot();
  ASSERT_EQ(snapshot.processes.size(), 2u);
  EXPECT_EQ(snapshot.processes[0].JobName(), snapshot.processes[1].JobName());
}

// Regression: a wait was one of ten seconds, however short the retention: nobody waited when the
// time was over.
TEST_F(WaitingRankTest, ADeadRankStaysKnownWithAShortRetention) {
  constexpr seconds kShort{4};
  SegmentTable table({scratch_.path()}, kShort);
  LockHolder dead(Path("dead.seg"));
  SegmentWriterV1 survivor = Rank(1);
  survivor.WriteTo(Path("survivor.seg"));
  const LockHolder alive(Path("survivor.seg"));
  Refresh(table, now_);
  dead.Kill();
  for (int i = 0; i < 30; ++i) {
    Refresh(table, now_);
    Advance(seconds(1));
    if (i > 0) continue;
    survivor.Put(0, Waiting());  // the next step's collective
    survivor.WriteTo(Path("survivor.seg"));
  }
  EXPECT_TRUE(Exists("dead.seg"));
  EXPECT_EQ(SnapshotOf(table, now_).segments.exited, 1u);
}

TEST_F(WaitingRankTest, ADeadRankIsKnownForNoLongerThanTheLongestWait) {
  SegmentWriterV1 survivor = Rank(1);
  survivor.Put(0, Waiting());
  survivor.WriteTo(Path("survivor.seg"));
  const LockHolder alive(Path("survivor.seg"));
  Kill();
  Wait(kLongestWait - seconds(60));
  EXPECT_EQ(Snapshot().processes.size(), 2u);
  Wait(seconds(180));
  EXPECT_EQ(Snapshot().processes.size(), 1u);
}

TEST_F(WaitingRankTest, NobodyWaitsForADeadRankWhoWorksOrIsElsewhere) {
  SegmentWriterV1 working = Rank(1), elsewhere = Rank(1);
  elsewhere.Put(0, CommunicatorV1{.id = 78, .ranks = 2, .rank = 1});
  elsewhere.Put(0, Waiting());
  working.WriteTo(Path("working.seg"));
  elsewhere.WriteTo(Path("elsewhere.seg"));
  const LockHolder a(Path("working.seg")), b(Path("elsewhere.seg"));
  Kill();
  Wait(kRetention + seconds(60));
  EXPECT_EQ(Snapshot().processes.size(), 2u);
  EXPECT_FALSE(Exists("dead.seg"));
}

TEST_F(WaitingRankTest, AnotherJobsRankWithTheSameCommunicatorIdKeepsNobodyKnown) {
  SegmentWriterV1 other = SegmentWith(1, 2);
  other.Put(ProcessV1{.pid = 2, .uid = ::getuid(), .identity = {{"SLURM_JOB_ID", "4712"}}});
  other.Put(0, CommunicatorV1{.id = 77, .ranks = 2, .rank = 1});
  other.Put(0, 4, FunctionV1{.operations = {1}});
  other.Put(0, Waiting());
  other.WriteTo(Path("other.seg"));
  const LockHolder alive(Path("other.seg"));
  Kill();
  Wait(kRetention + seconds(60));
  EXPECT_FALSE(Exists("dead.seg"));
}

TEST_F(WaitingRankTest, AnotherUsersProcessKeepsNobodyKnown) {
  SegmentWriterV1 stranger = Rank(1);
  stranger.Put(0, Waiting());
  stranger.WriteTo(Path("stranger.seg"));
  if (::chown(Path("stranger.seg").c_str(), 1001, static_cast<gid_t>(-1)) != 0) {
    GTEST_SKIP() << "needs root, to give files to other users";
  }
  const LockHolder alive(Path("stranger.seg"));
  Kill();
  Wait(kRetention + seconds(60));
  EXPECT_FALSE(Exists("dead.seg"));
}

}  // namespace
}  // namespace nccl_exporter::collector
