// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exporter/findings/late/late_candidates.h"
#include "exporter/findings/testing/late_job.h"

namespace nccl_exporter::exporter {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint64_t kTp = 1, kDp = 10;  // kDp and up: one per rank of tp
constexpr double kTransfer = 0.05;

// Tensor parallel groups of 4, and data parallel pairs of which each waits for the same lateness:
// a_late_rank_costs_the_same_by_rules_and_by_the_page of deploy/prometheus/tests/waiting_cases.py
// plays this job against the rules, and has the same numbers.
TEST(LostGpusTest, ALateRankCostsTheSameByThePageAndByTheRules) {
  LateJob job(8);
  job.Make(kTp, "tp0", {0, 1, 2, 3});
  job.Make(kTp + 1, "tp1", {4, 5, 6, 7});
  for (size_t i = 0; i < 4; ++i) job.Make(kDp + i, "dp" + std::to_string(i), {i, i + 4});
  job.Run(600, [&] {
    for (size_t i = 0; i < 4; ++i) {
      job.Busy(i, kTp, kTransfer);
      job.Busy(i + 4, kTp + 1, kTransfer + (i == 2 ? 0 : 0.2));
      job.Busy(i, kDp + i, kTransfer + 0.2);
      job.Busy(i + 4, kDp + i, kTransfer);
    }
    for (size_t i = 4; i < 8; ++i) job.Arrive(i, kDp + i - 4, 100, 99, 0.3);
  });
  ASSERT_THAT(job.Named(), ElementsAre(6));
  const Finding finding = job.Findings().front();
  EXPECT_EQ(finding.cost, "waiting costs 1.4 GPUs of 8 on this node");
  EXPECT_THAT(finding.headline, HasSubstr("it makes the other ranks of tp1 wait 20.0 % of the "
                                          "time."));
}

LostGpus LostOf(const NodeRates& rates) { return LostGpusOf(rates, Thresholds()).begin()->second; }

// Ranks of one communicator, each a GPU, that are busy for these shares of the time.
struct Peers {
  explicit Peers(std::vector<double> busy, uint64_t id = 1) : process(EmptyProcess(1)) {
    communicator = EmptyCommunicator(id, 0);
    communicator.timing_source = TimingSource::kKernel;
    peers.key = {.id = id, .ranks = busy.size(), .uid = 1000, .job = "1", .name_space = ""};
    for (size_t i = 0; i < busy.size(); ++i)
      peers.ranks.push_back({.rank = {&process, &communicator}, .process = i, .busy = busy[i]});
  }
  collector::ProcessSnapshot process;
  collector::CommunicatorSnapshot communicator;
  PeerRates peers;
};

NodeRates RatesWith(const std::vector<PeerRates>& all, size_t gpus) {
  NodeRates rates{.peers = all, .processes = std::vector<ProcessRates>(gpus)};
  for (const PeerRates& peers : all) {
    for (const RankRates& rank : peers.ranks) rates.processes[rank.process].busy += *rank.busy;
  }
  return rates;
}

TEST(LostGpusTest, AGpuLosesOneGpuAtMost) {
  const Peers first({0.8, 0.1, 0.8, 0.8}, 1), second({0.8, 0.1, 0.8, 0.8}, 2);
  const LostGpus lost = LostOf(RatesWith({first.peers, second.peers}, 4));
  EXPECT_DOUBLE_EQ(lost.lost, 3);
  EXPECT_EQ(lost.gpus, 4u);
}

TEST(LostGpusTest, JitterAndStagesOfAPipelineCostNothing) {
  const Peers jitter({0.109, 0.1, 0.108, 0.107});
  EXPECT_EQ(LostOf(RatesWith({jitter.peers}, 4)).lost, 0);
  Peers stages({0.4, 0.1, 0.4, 0.4});
  stages.peers.is_pipeline = true;
  EXPECT_EQ(LostOf(RatesWith({stages.peers}, 4)).lost, 0);
}

// Across nodes each bucket of a step waits for the same lateness.
TEST(LostGpusTest, BucketsOfAStepLoseTheirWaitOnce) {
  Peers across({0.8, 0.0, 0.8, 0.8});
  across.peers.steps = 1;
  for (size_t i = 0; i < 4; ++i) {
    for (const Function function : {Function::kAllReduce, Function::kReduceScatter})
      across.peers.ranks[i].step_waits[{.function = function}] = i == 1 ? 0 : 0.05;
  }
  EXPECT_NEAR(LostOf(RatesWith({across.peers}, 4)).lost, 3 * 0.05, 1e-9);
}

// Regression: a rank without times, a source of its own, made the losses of its communicator 0.
TEST(LostGpusTest, RanksWithoutTimesNeitherWaitNorAreWaitedFor) {
  Peers timed({0.3, 0.1, 0.3}), untimed({0.0});
  untimed.communicator.timing_source = TimingSource::kNone;
  untimed.peers.key = timed.peers.key;
  untimed.peers.ranks[0].process = 3;
  EXPECT_NEAR(LostOf(RatesWith({timed.peers, untimed.peers}, 4)).lost, 0.4, 1e-9);

  Peers idle({0.0});
  idle.communicator.rank = 7;
  NodeRates rates = RatesWith({timed.peers}, 4);
  rates.peers[0].ranks.insert(rates.peers[0].ranks.begin(), idle.peers.ranks[0]);
  rates.peers[0].ranks[0].busy.reset();
  const LostGpus lost = LostOf(rates);
  ASSERT_EQ(lost.by_rank.size(), 1u);
  EXPECT_EQ(lost.by_rank.begin()->first.second, 0);
}

TEST(LostGpusTest, JobsAreCountedApart) {
  Peers one({0.3, 0.1, 0.3, 0.3}), other({0.1, 0.1, 0.1, 0.1}, 2);
  other.peers.key.job = "2";
  for (size_t i = 0; i < 4; ++i) other.peers.ranks[i].process = 4 + i;
  const std::map<JobKey, LostGpus> jobs =
      LostGpusOf(RatesWith({one.peers, other.peers}, 8), Thresholds());
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_NEAR(jobs.begin()->second.lost, 0.6, 1e-9);
  EXPECT_EQ(jobs.rbegin()->second.lost, 0);
  EXPECT_EQ(jobs.rbegin()->second.gpus, 4u);
}

}  // namespace
}  // namespace nccl_exporter::exporter
