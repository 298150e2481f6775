// SPDX-License-Identifier: Apache-2.0
// A communicator behind a model of NCCL 2.30 (overrun_job.h). No wrong duration may be recorded,
// and no drift declared.
#include "plugin/operations/overrun/overrun_job.h"

namespace nccl_exporter::plugin {
namespace {

void ExpectNothingWrong(const Job& job) {
  EXPECT_EQ(job.wrong(), 0u) << "of " << job.recorded() << "; " << job.AllLosses();
  EXPECT_FALSE(job.drifts()) << job.AllLosses();
}

const Calls kAllReduce{Function::kAllReduce};
const Calls kAllGather{Function::kAllGather};
const Calls kBroadcast{Function::kBroadcast};

// NCCL 2.29 and later announce no operation for a Broadcast, which takes a place in the ring all
// the same.
TEST(RingOverrun, IsSeenWhereEveryOtherCallIsABroadcast) {
  for (const uint64_t works_late : {40, 64, 70, 90}) {
    SCOPED_TRACE(works_late);
    Job job({.groups = {kBroadcast, kAllGather}, .most_ahead = 92, .works_late = works_late});
    ASSERT_NO_FATAL_FAILURE(job.Run());
    ExpectNothingWrong(job);
    EXPECT_GE(job.recorded(), kRing / 2)
        << "of the end, which nothing overwrites; " << job.AllLosses();
  }
}

TEST(RingOverrun, IsSeenWhereThreeOfFourCallsAreBroadcasts) {
  for (const uint64_t works_late : {40, 64, 70, 90}) {
    SCOPED_TRACE(works_late);
    Job job({.groups = {kBroadcast, kBroadcast, kBroadcast, kAllReduce},
             .most_ahead = 95,
             .works_late = works_late});
    ASSERT_NO_FATAL_FAILURE(job.Run());
    ExpectNothingWrong(job);
    EXPECT_GE(job.recorded(), kRing / 4)
        << "of the end, which nothing overwrites; " << job.AllLosses();
  }
}

TEST(RingOverrun, IsSeenInGroupsOfPairsHoweverLateTheThreadIs) {
  for (const int pairs : {1, 4, 8}) {
    for (const uint64_t rings : {1, 2}) {
      SCOPED_TRACE(std::to_string(pairs) + " pairs, " + std::to_string(rings) + " rings late");
      Job job({.groups = {Pairs(pairs)},
               .rounds = 800 / pairs,
               .most_ahead = 420,
               .rings_late = rings});
      ASSERT_NO_FATAL_FAILURE(job.Run());
      ExpectNothingWrong(job);
      EXPECT_GE(job.recorded(), kRing)
          << "of the end, which nothing overwrites; " << job.AllLosses();
    }
  }
}

TEST(RingOverrun, IsSeenInCollectivesHoweverLateTheThreadIs) {
  for (const uint64_t rings : {1, 2, 3}) {
    SCOPED_TRACE(rings);
    Job job({.groups = {kAllReduce}, .rounds = 2000, .rings_late = rings});
    ASSERT_NO_FATAL_FAILURE(job.Run());
    ExpectNothingWrong(job);
    EXPECT_GE(job.recorded(), kRing) << "of the end, which nothing overwrites; " << job.AllLosses();
  }
}

// More operations than are followed: those that are not lie between two that are compared, and hide
// whole rings.
TEST(RingOverrun, IsSeenAcrossOperationsThatAreNotFollowed) {
  for (const uint64_t rings : {1, 2}) {
    SCOPED_TRACE(rings);
    Job job({.groups = {Pairs(3), kAllReduce, kAllGather},
             .rounds = 1000,
             .call_ns = 2 * kUs,
             .most_ahead = 900,
             .rings_late = rings});
    ASSERT_NO_FATAL_FAILURE(job.Run());
    ExpectNothingWrong(job);
    EXPECT_GT(job.Losses(Loss::kInFlightFull), 0u);
  }
}

// The thread sees a kernel start, is held up, and reads the stop of a kernel one ring later. For
// many kernels before, it was in time.
TEST(RingOverrun, IsSeenWhereTheThreadIsHeldUpWithinAKernel) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    Job job({.groups = {Pairs(1)},
             .rounds = 1200,
             .kernel_ns = 100 * kUs,
             .compute_ns = 20 * kUs,
             .call_ns = 2 * kUs,
             .most_ahead = 200,
             .rounds_between_waits = 200,
             .runs_ns = 2 * kMs,
             .held_up_ns = 20 * kMs,
             .jitter_seed = seed});
    ASSERT_NO_FATAL_FAILURE(job.Run());
    ExpectNothingWrong(job);
    EXPECT_GE(job.recorded(), job.operations() / 3) << job.AllLosses();
  }
}

// Any mix, any pace of host and GPU, and a thread that is held up again and again.
TEST(RingOverrun, NeverGivesAWrongDurationToARandomJob) {
  uint64_t recorded = 0;
  uint64_t operations = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto one_of = [&](std::initializer_list<uint64_t> values) {
      return values.begin()[random() % values.size()];
    };
    JobOptions options;
    for (uint64_t i = one_of({1, 2, 3, 8}); i > 0; --i) {
      options.groups.push_back(std::vector<Calls>{kAllReduce, kAllGather, kBroadcast, Pairs(1),
                                                  Pairs(4), Pairs(8), Many(40)}[random() % 7]);
    }
    if (random() % 2 == 0) {
      options.graph = Calls(one_of({1, 5, 40, 100}), Function::kAllReduce);
      options.rounds_between_replays = static_cast<int>(one_of({1, 2, 10}));
    }
    options.channels = static_cast<uint32_t>(one_of({1, 1, 2, 4}));
    options.has_inner_groups = random() % 2 == 0;
    options.rounds = static_cast<int>(1200 / options.groups.size());
    options.kernel_ns = one_of({10, 20, 100}) * kUs;
    options.compute_ns = one_of({0, 20, 300}) * kUs;
    options.call_ns = one_of({2, 5, 30, 300}) * kUs;
    options.most_ahead = one_of({20, 60, 100, 200, 400, 1000});
    options.rounds_between_waits = static_cast<int>(one_of({0, 1, 20, 200}));
    options.runs_ns = one_of({20, 200, 2000}) * kUs;
    options.held_up_ns = one_of({0, 1, 10, 100}) * options.runs_ns;
    options.jitter_seed = seed;
    Job job(options);
    ASSERT_NO_FATAL_FAILURE(job.Run());
    ExpectNothingWrong(job);
    recorded += job.recorded();
    operations += job.operations();
  }
  EXPECT_GT(recorded, operations / 2) << "of " << operations;
}

// Times that are known to be true are neither kept back nor dropped.

TEST(RingOverrun, LeavesAJobTimedWhoseThreadIsInTime) {
  Job job({.groups = {kAllReduce, Pairs(4), kBroadcast}, .rounds = 500, .most_ahead = 40});
  ASSERT_NO_FATAL_FAILURE(job.Run());
  ExpectNothingWrong(job);
  EXPECT_EQ(job.recorded(), job.operations()) << job.AllLosses();
}

TEST(RingOverrun, LeavesAJobTimedThatReplaysGraphsBetweenCallsOnSeveralChannels) {
  for (const bool has_inner_groups : {false, true}) {
    Job job({.groups = {kAllReduce, Pairs(4), kAllGather},
             .graph = Calls(8, Function::kAllReduce),
             .rounds_between_replays = 2,
             .channels = 4,
             .has_inner_groups = has_inner_groups,
             .rounds = 500,
             .most_ahead = 20});
    ASSERT_NO_FATAL_FAILURE(job.Run());
    ExpectNothingWrong(job);
    EXPECT_EQ(job.recorded(), job.operations()) << job.AllLosses();
  }
}

TEST(RingOverrun, LeavesAJobTimedThatMakesManyBroadcastsBetweenItsOperations) {
  std::vector<Calls> groups(200, kBroadcast);
  groups.push_back(kAllReduce);
  Job job({.groups = groups, .rounds = 20, .most_ahead = 20});
  ASSERT_NO_FATAL_FAILURE(job.Run());
  ExpectNothingWrong(job);
  EXPECT_EQ(job.recorded(), 20u) << job.AllLosses();
}

TEST(RingOverrun, LeavesAJobTimedThatWaitsForItsGpuNowAndThen) {
  for (const uint64_t held_up_ns : {uint64_t{0}, 100 * kUs}) {
    Job job({.groups = {kAllReduce, kBroadcast},
             .rounds = 2000,
             .compute_ns = 50 * kUs,
             .rounds_between_waits = 200,
             .runs_ns = 100 * kUs,
             .held_up_ns = held_up_ns});
    ASSERT_NO_FATAL_FAILURE(job.Run());
    ExpectNothingWrong(job);
    EXPECT_EQ(job.recorded(), job.operations()) << job.AllLosses();
  }
}

// The thread is held up for more than a ring, but the host waits after each step: the times
// themselves show which are older than the call that could have overwritten them.
TEST(RingOverrun, TimesWhatWasReadLateButCannotHaveBeenOverwritten) {
  Job job({.groups = {kAllReduce},
           .rounds = 1000,
           .kernel_ns = 20 * kUs,
           .call_ns = 30 * kUs,
           .most_ahead = 400,
           .runs_ns = 2 * kMs,
           .held_up_ns = 4 * kMs});
  ASSERT_NO_FATAL_FAILURE(job.Run());
  ExpectNothingWrong(job);
  EXPECT_GT(job.recorded(), job.operations() / 2) << job.AllLosses();
}

TEST(RingOverrun, LeavesAJobTimedThatIsAlwaysFarAheadWhereTheThreadWaitsForTheGpu) {
  Job job({.groups = {kAllReduce}, .rounds = 5000, .compute_ns = 100 * kUs, .most_ahead = 300});
  ASSERT_NO_FATAL_FAILURE(job.Run());
  ExpectNothingWrong(job);
  EXPECT_EQ(job.recorded(), job.operations()) << job.AllLosses();
}

}  // namespace
}  // namespace nccl_exporter::plugin
