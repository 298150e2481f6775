// SPDX-License-Identifier: Apache-2.0
// Ranks that are late by the same time at every operation, on GPUs whose clocks are apart and
// drift, of hosts that are far ahead: what the matcher compares, which rank it names, and by how
// much.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "collector/arrivals/arrival_matcher.h"

namespace nccl_exporter::collector {
namespace {

constexpr int64_t kMicrosecond = 1000;
constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kBoot = 5'000 * kSecond;           // CLOCK_MONOTONIC at the first operation
constexpr int64_t kEpoch = 1'700'000'000 * kSecond;  // of the first GPU's clock, then
constexpr int64_t kClockOffset = 2 * kSecond;        // from one GPU's clock to the next one's
constexpr int64_t kCompute = 2 * kMillisecond;  // from the end of an operation to the next start
// From the stop to the progress thread, at least.
constexpr int64_t kFastestDelivery = 8 * kMicrosecond;

// The job that is played. Rank 1 is late.
struct Job {
  int ranks = 2;
  int operations = 600;
  int64_t late_ns = 0;
  int every = 1;          // operation
  double drift_ppm = 50;  // of rank 1's clock; the others between it and its opposite
  int64_t tick_ns = 32;   // of the GPUs' clocks
  int64_t host_ahead_ns = 50 * kMillisecond;       // from the call to the start
  int64_t start_jitter_ns = 3 * kMicrosecond;      // mean
  int64_t transfer_ns = 30 * kMicrosecond;         // from the last start to the stops
  int64_t delivery_jitter_ns = 30 * kMicrosecond;  // mean; every fourth is 2 ms later
  int64_t late_delivery_ns = 0;                    // all of rank 1's
  int64_t late_stop_ns = 0;                        // rank 0 stops later than the others
};

struct Outcome {
  double compared = 0;  // share of operations
  double named = 0;     // share of operations that name rank 1
  double lateness = 0;  // of rank 1 in the compared operations, counted over true
  uint64_t others_named = 0;
  uint64_t wrong = 0;  // operations that name a rank that started before another one
};

class ConstantLateness : public testing::Test {
 protected:
  ArrivalMatcher::Member* Add(int rank) {
    return matcher_.Add(
        {.communicator =
             {.id = 7, .ranks = 8, .uid = 1000 + job_number_, .job = "", .name_space = ""},
         .rank = static_cast<uint64_t>(rank),
         .has_kernel_times = true,
         .call_is_bound = true});
  }
  int64_t Jitter(int64_t mean_ns) {
    const double uniform = (static_cast<double>(random_() >> 11) + 0.5) / 9007199254740992.0;
    return static_cast<int64_t>(-static_cast<double>(mean_ns) * std::log(uniform));
  }
  static uint64_t GpuTime(const Job& job, int rank, int64_t at_ns) {
    const double rate =
        job.drift_ppm * 1e-6 * (1 - 2.0 * std::abs(rank - 1) / std::max(job.ranks - 1, 1));
    const int64_t shown_ns = kEpoch + rank * kClockOffset + at_ns +
                             static_cast<int64_t>(rate * static_cast<double>(at_ns));
    return static_cast<uint64_t>(shown_ns / job.tick_ns * job.tick_ns);
  }

  // One operation of all ranks that begins after `at_ns`; returns its end.
  int64_t PlayOne(const Job& job, const std::vector<ArrivalMatcher::Member*>& members,
                  uint64_t sequence, int64_t at_ns, Outcome& outcome) {
    std::vector<int64_t> starts;
    for (int rank = 0; rank < job.ranks; ++rank) {
      const bool is_late = rank == 1 && sequence % static_cast<uint64_t>(job.every) == 0;
      starts.push_back(at_ns + Jitter(job.start_jitter_ns) + (is_late ? job.late_ns : 0));
    }
    const int64_t last_start_ns = *std::ranges::max_element(starts),
                  first_start_ns = *std::ranges::min_element(starts);
    std::vector<uint64_t> last_before;
    for (const ArrivalMatcher::Member* member : members) last_before.push_back(member->counts.last);
    const uint64_t compared_before = members[1]->counts.compared;
    for (int rank = 0; rank < job.ranks; ++rank) {
      const auto at = static_cast<size_t>(rank);
      const int64_t stop_ns =
          last_start_ns + job.transfer_ns + Jitter(500) + (rank == 0 ? job.late_stop_ns : 0);
      const int64_t delivered_ns = stop_ns + kFastestDelivery + Jitter(job.delivery_jitter_ns) +
                                   (rank == 1 ? job.late_delivery_ns : 0) +
                                   (random_() % 4 == 0 ? 2 * kMillisecond : 0);
      matcher_.Take(
          members[at],
          {.function_and_sequence = static_cast<uint64_t>(Function::kAllReduce) << 56 | sequence,
           .call_ns =
               static_cast<uint64_t>(kBoot + starts[at] - job.host_ahead_ns - Jitter(kMicrosecond)),
           .start_ns = GpuTime(job, rank, starts[at]),
           .stop_ns = GpuTime(job, rank, stop_ns),
           .delivered_ns = static_cast<uint64_t>(kBoot + delivered_ns)},
          static_cast<uint64_t>(kBoot + delivered_ns));
    }
    const bool is_compared = members[1]->counts.compared != compared_before;
    if (is_compared) ++outcome.compared;
    if (is_compared) true_lateness_ns_ += starts[1] - first_start_ns;
    for (size_t rank = 0; rank < members.size(); ++rank) {
      const bool is_named = members[rank]->counts.last != last_before[rank];
      if (is_named && starts[rank] < last_start_ns) ++outcome.wrong;
      if (is_named && rank == 1) ++outcome.named;
      if (is_named && rank != 1) ++outcome.others_named;
    }
    return last_start_ns + job.transfer_ns + job.late_stop_ns;
  }

  // Plays a job of its own.
  Outcome Play(const Job& job) {
    ++job_number_;
    true_lateness_ns_ = 0;
    members_.clear();
    for (int rank = 0; rank < job.ranks; ++rank) members_.push_back(Add(rank));
    Outcome outcome;
    int64_t at_ns = 0;
    for (int i = 0; i < job.operations; ++i) {
      at_ns = PlayOne(job, members_, static_cast<uint64_t>(i), at_ns, outcome) + kCompute;
    }
    const double late_operations = job.operations / static_cast<double>(job.every);
    outcome.lateness = static_cast<double>(members_[1]->counts.lateness_ns) /
                       static_cast<double>(std::max<int64_t>(true_lateness_ns_, 1));
    outcome.compared /= late_operations;
    outcome.named /= late_operations;
    return outcome;
  }

  ArrivalMatcher matcher_;
  std::vector<ArrivalMatcher::Member*> members_;
  uint64_t job_number_ = 0;
  std::mt19937_64 random_{1};
  int64_t true_lateness_ns_ = 0;
};

void ExpectNamed(const Outcome& outcome, double share) {
  EXPECT_GE(outcome.compared, share);
  EXPECT_GE(outcome.named, share);
  EXPECT_NEAR(outcome.lateness, 1, 0.1);
  EXPECT_EQ(outcome.wrong, 0u);
  EXPECT_EQ(outcome.others_named, 0u);
}

TEST_F(ConstantLateness, Of100MicrosecondsIsNamed) {
  ExpectNamed(Play({.late_ns = 100 * kMicrosecond}), 0.8);
}
TEST_F(ConstantLateness, Of500MicrosecondsIsReadRight) {
  ExpectNamed(Play({.late_ns = 500 * kMicrosecond}), 0.8);
}
TEST_F(ConstantLateness, OfOneInFourRanksIsNamed) {
  ExpectNamed(Play({.ranks = 4, .late_ns = 100 * kMicrosecond}), 0.8);
}
TEST_F(ConstantLateness, OfOneInEightRanksIsNamed) {
  ExpectNamed(Play({.ranks = 8, .late_ns = 100 * kMicrosecond}), 0.8);
}
TEST_F(ConstantLateness, IsNamedByClocksOfCoarseSteps) {
  ExpectNamed(Play({.late_ns = 100 * kMicrosecond, .tick_ns = 1024}), 0.8);
}
TEST_F(ConstantLateness, IsNamedWhereNoCallIsNear) {
  ExpectNamed(Play({.late_ns = 100 * kMicrosecond, .host_ahead_ns = kSecond}), 0.8);
}
TEST_F(ConstantLateness, AtEveryTenthOperationIsNamed) {
  const Outcome outcome = Play({.operations = 2000, .late_ns = 100 * kMicrosecond, .every = 10});
  EXPECT_GE(outcome.named, 0.9);
  EXPECT_NEAR(outcome.lateness, 1, 0.1);
  EXPECT_EQ(outcome.wrong, 0u);
}
TEST_F(ConstantLateness, OfLittleNamesNobodyWrongly) {
  for (const int64_t late_ns : {5 * kMicrosecond, 20 * kMicrosecond, 50 * kMicrosecond}) {
    const Outcome outcome = Play({.late_ns = late_ns});
    EXPECT_EQ(outcome.wrong, 0u);
    EXPECT_EQ(outcome.others_named, 0u);
  }
}

void ExpectNobodyNamed(const Outcome& outcome) {
  EXPECT_EQ(outcome.named, 0);
  EXPECT_EQ(outcome.others_named, 0u);
}

// Hosts that jitter make now this rank late and now that one: no more is said than that.
TEST_F(ConstantLateness, OfNobodyBehindHostsThatJitterNamesAllAlike) {
  const Outcome outcome =
      Play({.ranks = 4, .operations = 2000, .start_jitter_ns = 100 * kMicrosecond});
  EXPECT_EQ(outcome.wrong, 0u);
  EXPECT_GT(outcome.named, 0.05);
  EXPECT_NEAR(static_cast<double>(outcome.others_named) / (3 * 2000 * outcome.named), 1, 0.2);
}

TEST_F(ConstantLateness, OfNobodyNamesNobody) {
  for (const int ranks : {2, 4, 8})
    ExpectNobodyNamed(Play({.ranks = ranks, .start_jitter_ns = kMicrosecond / 2}));
}
TEST_F(ConstantLateness, OfDeliveriesIsNoLateness) {
  ExpectNobodyNamed(
      Play({.start_jitter_ns = kMicrosecond / 2, .late_delivery_ns = 200 * kMicrosecond}));
}
// Stops within the assumption name nobody.
TEST_F(ConstantLateness, OfAStopIsNoLatenessWithinTheAssumption) {
  for (const int ranks : {2, 8}) {
    ExpectNobodyNamed(Play({.ranks = ranks,
                            .start_jitter_ns = kMicrosecond / 2,
                            .transfer_ns = kMillisecond,
                            .late_stop_ns = 100 * kMicrosecond}));
  }
}
// The limit of the definition: a rank that always leaves later makes the others look late. Of three
// ranks and more none is last then.
TEST_F(ConstantLateness, OfAStopBeyondTheAssumptionNamesTheOtherOfTwoAndNobodyOfMore) {
  const Job job{.start_jitter_ns = kMicrosecond / 2, .late_stop_ns = 200 * kMicrosecond};
  EXPECT_EQ(Play(job).named, 1);
  for (const int ranks : {3, 8}) {
    Job of_more = job;
    of_more.ranks = ranks;
    ExpectNobodyNamed(Play(of_more));
  }
}

}  // namespace
}  // namespace nccl_exporter::collector
