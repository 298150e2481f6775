// SPDX-License-Identifier: Apache-2.0
#include "plugin/timing/timestamp_check.h"

#include <gtest/gtest.h>

namespace nccl_exporter::plugin {
namespace {

constexpr uint64_t kUs = 1000;
constexpr uint64_t kMs = 1000 * kUs;
constexpr uint64_t kSecond = 1000 * kMs;

// A GPU whose clock is `distance` behind the CPU's. Launch n is called at call_ns, starts 10 us
// later, and is delivered 5 us after its stop.
LaunchTimes Launch(uint64_t ticket, uint64_t call_ns, uint64_t duration_ns,
                   uint64_t distance_ns = 1000 * kSecond) {
  const uint64_t start_ns = call_ns + 10 * kUs;
  return {.first_ticket = ticket,
          .last_ticket = ticket,
          .start_ns = start_ns + distance_ns,
          .stop_ns = start_ns + duration_ns + distance_ns,
          .call_ns = call_ns,
          .delivered_ns = start_ns + duration_ns + 5 * kUs};
}

TEST(TimestampCheck, BelievesLaunchesInOrder) {
  TimestampCheck judge;
  for (uint64_t i = 1; i <= 1000; ++i) {
    EXPECT_EQ(judge.Judge(Launch(i, i * kMs, 100 * kUs)).loss, std::nullopt) << i;
  }
}

TEST(TimestampCheck, BelievesClocksThatDriftApartSlowly) {
  TimestampCheck judge;
  for (uint64_t i = 1; i <= 1000; ++i) {
    EXPECT_EQ(judge.Judge(Launch(i, i * kSecond, 100 * kUs, 1000 * kSecond + i * 300 * kUs)).loss,
              std::nullopt)
        << i;
  }
}

TEST(TimestampCheck, BelievesLongPauses) {
  TimestampCheck judge;
  EXPECT_EQ(judge.Judge(Launch(1, kSecond, kMs)).loss, std::nullopt);
  EXPECT_EQ(judge.Judge(Launch(2, 2 * kSecond, kMs)).loss, std::nullopt);
  EXPECT_EQ(judge.Judge(Launch(3, 3600 * kSecond, kMs)).loss, std::nullopt);
}

TEST(TimestampCheck, RefusesALaunchThatTookNoTime) {
  TimestampCheck judge;
  EXPECT_EQ(judge.Judge(Launch(1, kSecond, 0)).loss, Loss::kStopBeforeStart);
}

TEST(TimestampCheck, RefusesADurationLongerThanTheCpuWaited) {
  TimestampCheck judge;
  LaunchTimes launch = Launch(1, kSecond, 10 * kMs);
  launch.delivered_ns = launch.call_ns + 50 * kUs;
  EXPECT_EQ(judge.Judge(launch).loss, Loss::kLongerThanCpuTime);
}

TEST(TimestampCheck, RefusesTheTimesOfTheLaunchBefore) {
  TimestampCheck judge;
  EXPECT_EQ(judge.Judge(Launch(1, kSecond, 20 * kUs)).loss, std::nullopt);
  LaunchTimes stale = Launch(2, 2 * kSecond, 20 * kUs);
  const LaunchTimes before = Launch(1, kSecond, 20 * kUs);
  stale.start_ns = before.start_ns;
  stale.stop_ns = before.stop_ns;
  EXPECT_EQ(judge.Judge(stale).loss, Loss::kClockMismatch);
}

TEST(TimestampCheck, RefusesAClockThatJumps) {
  TimestampCheck judge;
  EXPECT_EQ(judge.Judge(Launch(1, kSecond, kMs)).loss, std::nullopt);
  EXPECT_EQ(judge.Judge(Launch(2, 2 * kSecond, kMs, 1100 * kSecond)).loss, Loss::kClockMismatch);
  EXPECT_EQ(judge.Judge(Launch(3, 3 * kSecond, kMs, 900 * kSecond)).loss, Loss::kClockMismatch);
}

TEST(TimestampCheck, KnowsAnUpperBoundOnlyWhereTheCallIsNotDated) {
  TimestampCheck judge;
  LaunchTimes launch = Launch(1, kSecond, kMs);
  launch.call_ns = 0;
  EXPECT_EQ(judge.Judge(launch).loss, std::nullopt);
  launch = Launch(2, 2 * kSecond, kMs);
  launch.call_ns = 0;
  EXPECT_EQ(judge.Judge(launch).loss, std::nullopt);
}

TEST(TimestampCheck, TakesAnOverlapWithTheLaunchBeforeForDriftEqualTimesIncluded) {
  static_assert(TimestampCheck::IsDrift(Loss::kOverlap));
  TimestampCheck judge;
  EXPECT_EQ(judge.Judge(Launch(1, kSecond, 10 * kMs)).loss, std::nullopt);
  LaunchTimes overlapping = Launch(2, kSecond + kMs, 20 * kMs);
  EXPECT_EQ(judge.Judge(overlapping).loss, Loss::kOverlap);
  LaunchTimes equal = Launch(1, kSecond, 10 * kMs);
  equal.first_ticket = equal.last_ticket = 3;
  EXPECT_EQ(judge.Judge(equal).loss, Loss::kOverlap);
}

TEST(TimestampCheck, TakesTimesBeforeThoseOfAnEarlierLaunchThatStillRunsForDrift) {
  TimestampCheck judge;
  LaunchTimes launch = Launch(2, kSecond, 10 * kMs);
  launch.earlier_ns = launch.start_ns + 1;
  EXPECT_EQ(judge.Judge(launch).loss, Loss::kOverlap);
}

TEST(TimestampCheck, BelievesALaunchThatIsRecordedLateIfItEndedInTime) {
  TimestampCheck judge;
  EXPECT_EQ(judge.Judge(Launch(2, 2 * kSecond, kMs)).loss, std::nullopt);
  EXPECT_EQ(judge.Judge(Launch(1, kSecond, kMs)).loss, std::nullopt);
  LaunchTimes too_long = Launch(1, kSecond, kMs);
  too_long.stop_ns = Launch(2, 2 * kSecond, kMs).stop_ns;
  too_long.delivered_ns = 3 * kSecond;
  EXPECT_EQ(judge.Judge(too_long).loss, Loss::kOverlap);
}

TEST(TimestampCheck, RefusesALaunchWhoseChannelsDidNotRunTogetherButTellsAnOverlapByIt) {
  static_assert(!TimestampCheck::IsDrift(Loss::kDisjointChannels));
  TimestampCheck judge;
  LaunchTimes disjoint = Launch(1, kSecond, 10 * kMs);
  disjoint.has_disjoint_channels = true;
  EXPECT_EQ(judge.Judge(disjoint).loss, Loss::kDisjointChannels);
  EXPECT_EQ(judge.Judge(Launch(2, kSecond + 5 * kMs, 10 * kMs)).loss, Loss::kOverlap);
}

// The call that could overwrite the entries of a launch is made so long after it was delivered, or
// before.
class PlausibilityOfOverruns : public testing::Test {
 protected:
  // The next launch, 1 ms after the one before, whose times are delivered so much later than its
  // stop.
  LaunchTimes Next(uint64_t overwritable_ns, uint64_t late_ns = 5 * kUs) {
    call_ns_ += kMs;
    LaunchTimes launch = Launch(++ticket_, call_ns_, 100 * kUs);
    launch.overwritable_ns = overwritable_ns;
    launch.started_ns = launch.delivered_ns - 90 * kUs;
    launch.delivered_ns += late_ns - 5 * kUs;
    return launch;
  }
  uint64_t StopOfNext() const { return call_ns_ + kMs + 110 * kUs; }  // by the CPU's clock

  TimestampCheck judge_;
  uint64_t ticket_ = 0;
  uint64_t call_ns_ = kSecond;
};

TEST_F(PlausibilityOfOverruns, TakesTimesForOwnThatEndBeforeTheCallThatCouldOverwriteThem) {
  EXPECT_TRUE(judge_.Judge(Next(WorkItems::kNotYet)).is_own);
  EXPECT_TRUE(judge_.Judge(Next(StopOfNext() + 100 * kUs)).is_own);
  EXPECT_TRUE(judge_.Judge(Next(StopOfNext() + 100 * kUs, 500 * kUs)).is_own)
      << "however late they are delivered";
  EXPECT_FALSE(judge_.Judge(Next(StopOfNext() - 100 * kUs)).is_own);
  EXPECT_FALSE(judge_.Judge(Next(StopOfNext() + kUs)).is_own) << "the clocks are not known so well";
  EXPECT_FALSE(judge_.Judge(Next(0)).is_own) << "the call is not known";
}

TEST_F(PlausibilityOfOverruns, ReleasesWhatIsHeldWithOwnTimesOnly) {
  EXPECT_EQ(judge_.Judge(Next(0)).release_until, 0u);
  const Verdict verdict = judge_.Judge(Next(WorkItems::kNotYet));
  EXPECT_EQ(verdict.loss, std::nullopt);
  EXPECT_EQ(verdict.release_until, 2u);
  EXPECT_FALSE(verdict.refutes_held);
}

TEST_F(PlausibilityOfOverruns, TakesTimesThatGoBackForAnOverrunUnlessThoseBeforeWereOwn) {
  LaunchTimes newer = Next(0);
  newer.start_ns += 5 * kMs;
  newer.stop_ns += 5 * kMs;
  newer.delivered_ns += 5 * kMs;
  EXPECT_EQ(judge_.Judge(newer).loss, std::nullopt);
  Verdict verdict = judge_.Judge(Next(WorkItems::kNotYet));
  EXPECT_EQ(verdict.loss, std::nullopt);
  EXPECT_TRUE(verdict.refutes_held);
  LaunchTimes older = Next(0);
  older.start_ns -= 1500 * kUs;
  older.call_ns = 0;
  EXPECT_EQ(judge_.Judge(older).loss, Loss::kOverlap);
}

TEST_F(PlausibilityOfOverruns, TakesDisjointChannelsForAnOverrunUnlessTheTimesAreOwn) {
  LaunchTimes launch = Next(0);
  launch.has_disjoint_channels = true;
  EXPECT_EQ(judge_.Judge(launch).loss, Loss::kRingOverrun);
  launch = Next(WorkItems::kNotYet);
  launch.has_disjoint_channels = true;
  EXPECT_EQ(judge_.Judge(launch).loss, Loss::kDisjointChannels);
}

TEST_F(PlausibilityOfOverruns, BelievesALaunchThatIsRecordedLateOnlyByItsOwnTimes) {
  const LaunchTimes early_one = Next(0);
  LaunchTimes early_two = Next(WorkItems::kNotYet);
  EXPECT_EQ(judge_.Judge(Next(WorkItems::kNotYet)).loss, std::nullopt);
  EXPECT_EQ(judge_.Judge(early_one).loss, Loss::kRingOverrun);
  const Verdict verdict = judge_.Judge(early_two);
  EXPECT_EQ(verdict.loss, std::nullopt);
  EXPECT_TRUE(verdict.is_own);
  EXPECT_EQ(verdict.release_until, 0u) << "it was not compared with the launches around it";
}

// The tickets of launches are 1, 2, 3 ...
TEST_F(PlausibilityOfOverruns, ReleasesWhatIsHeldBeforeARowOfLaunchesThatTheThreadWaitedFor) {
  constexpr uint64_t kRow = TimestampCheck::kPatientLaunches;
  judge_.Judge(Next(0));  // nothing was delivered before
  for (uint64_t i = 1; i <= kRow + 3; ++i) {
    const Verdict verdict = judge_.Judge(Next(0));
    EXPECT_EQ(verdict.release_until, i < kRow ? 0 : ticket_ - kRow + 1)
        << "those of the row may be held up themselves";
    EXPECT_FALSE(verdict.is_own) << "no proof, where drift is concerned";
  }
}

// Regression: own launches left their place in the row as it was.
TEST_F(PlausibilityOfOverruns, CountsOwnLaunchesInARow) {
  constexpr uint64_t kRow = TimestampCheck::kPatientLaunches;
  judge_.Judge(Next(0));
  for (uint64_t i = 1; i <= 3 * kRow; ++i) {
    const bool is_own = i % 5 == 0;
    const Verdict verdict = judge_.Judge(Next(is_own ? WorkItems::kNotYet : 0));
    const uint64_t first_of_row = i < kRow ? 0 : ticket_ - kRow + 1;
    EXPECT_EQ(verdict.release_until, is_own ? ticket_ : first_of_row);
  }
}

TEST_F(PlausibilityOfOverruns, BeginsARowAnewWhereTheThreadWasNotSeenToWait) {
  constexpr uint64_t kRow = TimestampCheck::kPatientLaunches;
  const auto releases_after = [&](uint64_t launches) {
    for (uint64_t i = 1; i < launches; ++i) EXPECT_EQ(judge_.Judge(Next(0)).release_until, 0u) << i;
    return judge_.Judge(Next(0)).release_until != 0;
  };
  judge_.Judge(Next(0));
  EXPECT_TRUE(releases_after(kRow));
  LaunchTimes hasty = Next(0);  // its start and its stop were there at the same time
  hasty.started_ns = hasty.delivered_ns - kUs;
  EXPECT_EQ(judge_.Judge(hasty).release_until, 0u);
  EXPECT_TRUE(releases_after(kRow));
  LaunchTimes unseen = Next(0);
  unseen.started_ns = LaunchTimes::kNeverSeen;
  EXPECT_EQ(judge_.Judge(unseen).release_until, 0u);
  EXPECT_TRUE(releases_after(kRow));
  judge_.EndPatience();
  EXPECT_TRUE(releases_after(kRow));
}

}  // namespace
}  // namespace nccl_exporter::plugin
