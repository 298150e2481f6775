// SPDX-License-Identifier: Apache-2.0
#include "simulator/workload/elastic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "simulator/workload/timeline.h"

namespace nccl_exporter::sim {
namespace {

constexpr int64_t kPeriod = 100000000;
constexpr int kNccl = 23007;

using testing::IsEmpty;

class ElasticTest : public testing::Test {
 protected:
  // A job on one node, whose first communicator changes.
  void Start(const std::string& text, const std::string& layout = "single",
             std::vector<Incident> incidents = {}, int ranks = 4) {
    std::string error;
    workload_ = std::make_unique<Workload>(
        WorkloadOptions{.layout = layout,
                        .shape = {.nodes = 1, .ranks_per_node = ranks},
                        .elastic = ParseElasticChange(text, kNccl, error).value()});
    timeline_ =
        std::make_unique<Timeline>(*workload_, TimelineOptions{.period_ns = kPeriod,
                                                               .compute_ns = kPeriod / 4,
                                                               .last_thread = ranks,
                                                               .incidents = std::move(incidents)});
  }
  // Ranks of the plans of the next step that `chooses` takes, by the place of the communicator.
  template <typename Chooses>
  std::map<int, std::set<int>> Next(Chooses chooses) {
    std::map<int, std::set<int>> ranks;
    for (const ThreadStep& thread : timeline_->Next()) {
      latest_start_ns_ = std::max(latest_start_ns_, thread.started_ns);
      for (const ThreadGroup& group : thread.groups) {
        for (const Plan& plan : group.plans) {
          if (chooses(plan)) ranks[plan.communicator].insert(plan.rank);
        }
      }
    }
    return ranks;
  }
  static bool Ends(const Plan& plan) { return plan.kernel_stop_ns < kNever; }
  static bool Stays(const Plan& plan) { return plan.kernel_stop_ns >= kNever; }

  int64_t latest_start_ns_ = 0;
  std::unique_ptr<Workload> workload_;
  std::unique_ptr<Timeline> timeline_;
};

using Ranks = std::map<int, std::set<int>>;
const Ranks kAll{{0, {0, 1, 2, 3}}};

TEST_F(ElasticTest, RevokeLeavesOperationsInFlightAndAllRanksGoOnInANewCommunicator) {
  Start("revoke@2");
  EXPECT_EQ(Next(Ends), kAll);
  EXPECT_EQ(Next(Ends), kAll);
  EXPECT_EQ(Next(Stays), (Ranks{{0, {0, 1, 2}}})) << "the last rank has not called";
  const int64_t aborted_ns = latest_start_ns_;
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(Next(Ends), (Ranks{{1, {0, 1, 2, 3}}}));
    EXPECT_LT(latest_start_ns_, kNever);
  }
  EXPECT_GT(latest_start_ns_, aborted_ns + 4 * kPeriod) << "it waited for the abort";
}

TEST_F(ElasticTest, ShrinkWithAbortGoesOnWithoutTheLastRankThoughThatWasKilled) {
  std::string error;
  Start("shrink-abort@2", "dp",
        {ParseIncident("kill:rank=3,from=0.15", {.nodes = 1, .ranks_per_node = 4}, error).value()});
  for (int step = 0; step < 2; ++step) EXPECT_EQ(Next(Ends), kAll);
  EXPECT_FALSE(Next(Stays).empty());
  EXPECT_EQ(Next(Ends), (Ranks{{1, {0, 1, 2}}}));
}

TEST_F(ElasticTest, ShrinkLeavesAnIdleCommunicator) {
  Start("shrink@1");
  for (int step = 0; step < 2; ++step) EXPECT_EQ(Next(Ends), kAll);
  EXPECT_EQ(Next([](const Plan&) { return true; }), (Ranks{{1, {0, 1, 2}}}));
}

TEST_F(ElasticTest, GrowAddsTheLastRank) {
  Start("grow@1");
  for (int step = 0; step < 2; ++step) EXPECT_EQ(Next(Ends), (Ranks{{0, {0, 1, 2}}}));
  EXPECT_EQ(Next(Ends), (Ranks{{1, {0, 1, 2, 3}}}));
}

TEST_F(ElasticTest, SuspendPausesFiftySteps) {
  Start("suspend@0");
  EXPECT_EQ(Next(Ends), kAll);
  for (int step = 0; step < 50; ++step) EXPECT_THAT(Next(Ends), IsEmpty());
  EXPECT_EQ(Next(Ends), kAll);
}

TEST_F(ElasticTest, OtherCommunicatorsGoOnAsBefore) {
  Start("revoke@0", "3d", {}, 8);
  const int communicators = static_cast<int>(workload_->communicators().size());
  Next(Ends);
  const Ranks after = Next(Ends);
  EXPECT_FALSE(after.contains(0));
  EXPECT_EQ(after.at(communicators - 1).size(), workload_->communicators()[0].members.size());
  EXPECT_GT(after.size(), 1u);
}

TEST(ElasticChangeTest, NeedsAReleaseWithTheCall) {
  std::string error;
  EXPECT_TRUE(ParseElasticChange("revoke@7", 22809, error));
  EXPECT_FALSE(ParseElasticChange("revoke@7", 22807, error));
  EXPECT_EQ(error, "--elastic revoke needs NCCL 22809 or later");
  error.clear();
  for (const char* const bad : {"revoke", "revoke@", "revoke@-1", "revoke@2x", "invoke@2", ""}) {
    EXPECT_FALSE(ParseElasticChange(bad, 23007, error)) << bad;
    EXPECT_NE(error, "") << bad;
  }
}

}  // namespace
}  // namespace nccl_exporter::sim
