// SPDX-License-Identifier: Apache-2.0
#include "simulator/workload/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "simulator/workload/layout.h"
#include "simulator/workload/rank_calls.h"

namespace nccl_exporter::sim {
namespace {

WorkloadOptions Of(const std::string& layout, int nodes, int ranks_per_node) {
  return {.layout = layout, .shape = {.nodes = nodes, .ranks_per_node = ranks_per_node}};
}

TimelineOptions AllThreads(const Workload& workload) {
  return {
      .period_ns = 100000000, .compute_ns = 40000000, .last_thread = workload.shape().threads()};
}

// Plans of the first group of a step, of all ranks.
std::vector<Plan> FirstPlans(const std::vector<ThreadStep>& step) {
  std::vector<Plan> plans;
  for (const ThreadStep& thread : step) plans.push_back(thread.groups.front().plans.front());
  return plans;
}

TEST(Timeline, GivesTheLastRankToArriveTheShortestKernel) {
  const Workload workload(Of("single", 1, 8));
  Timeline timeline(workload, AllThreads(workload));
  for (int step = 0; step < 10; ++step) {
    const std::vector<Plan> plans = FirstPlans(timeline.Next());
    const auto last = std::max_element(plans.begin(), plans.end(), [](auto& a, auto& b) {
      return a.kernel_start_ns < b.kernel_start_ns;
    });
    for (const Plan& plan : plans) {
      EXPECT_GT(plan.kernel_stop_ns, last->kernel_start_ns);
      EXPECT_LT(std::abs(plan.kernel_stop_ns - last->kernel_stop_ns), 1000);
      if (plan.rank != last->rank && last->kernel_start_ns - plan.kernel_start_ns > 1000) {
        EXPECT_GT(plan.kernel_stop_ns - plan.kernel_start_ns,
                  last->kernel_stop_ns - last->kernel_start_ns);
      }
    }
  }
}

TEST(Timeline, IsTheSameWhicheverThreadsAreKept) {
  for (const Layout& layout : Layouts()) {
    const Workload workload(Of(std::string(layout.name), 2, 4));
    Timeline all(workload, AllThreads(workload));
    TimelineOptions only_third = AllThreads(workload);
    only_third.first_thread = 3;
    only_third.last_thread = 4;
    Timeline one(workload, only_third);
    for (int step = 0; step < 3; ++step) {
      const ThreadStep expected = all.Next()[3];
      const ThreadStep kept = one.Next()[0];
      ASSERT_EQ(kept.groups.size(), expected.groups.size()) << layout.name;
      for (size_t i = 0; i < kept.groups.size(); ++i) {
        ASSERT_EQ(kept.groups[i].plans.size(), expected.groups[i].plans.size());
        EXPECT_EQ(kept.groups[i].plans.back().kernel_stop_ns,
                  expected.groups[i].plans.back().kernel_stop_ns);
      }
    }
  }
}

TEST(Timeline, RunsTheKernelsOfACommunicatorOneAfterTheOther) {
  const Workload workload(Of("mixed", 2, 4));
  Timeline timeline(workload, AllThreads(workload));
  std::map<std::pair<int, int>, int64_t> end;
  for (int step = 0; step < 5; ++step) {
    for (const ThreadStep& thread : timeline.Next()) {
      for (const ThreadGroup& group : thread.groups) {
        for (const Plan& plan : group.plans) {
          int64_t& stream = end[{plan.rank, plan.communicator}];
          EXPECT_GE(plan.kernel_start_ns, stream);
          EXPECT_GT(plan.kernel_stop_ns, plan.kernel_start_ns);
          EXPECT_GE(plan.kernel_start_ns, plan.launched_ns);
          EXPECT_GT(plan.launched_ns, plan.tasks.front().called_ns);
          stream = plan.kernel_stop_ns;
        }
      }
    }
  }
}

TEST(Timeline, KeepsThePeriodThatItFindsSustainable) {
  const Workload workload(Of("dp", 2, 4));
  TimelineOptions options = AllThreads(workload);
  options.compute_ns = 0;
  options.period_ns = SustainablePeriodNs(workload, options);
  Timeline timeline(workload, options);
  for (int64_t step = 0; step < 20; ++step) {
    EXPECT_LT(timeline.Next()[0].started_ns, step * options.period_ns + 100000);
  }
}

TEST(RankCalls, MakesAnAlltoAllOfSendsAndReceives) {
  const Workload workload(Of("moe", 1, 4));
  const Group exchange = workload.GroupsOfStep(0).front();
  const std::vector<RankCall> calls = CallsOf(exchange, workload.communicators(), 2, 3);
  ASSERT_EQ(calls.size(), 8u);
  EXPECT_EQ(calls[0].function, Function::kSend);
  EXPECT_EQ(calls[1].function, Function::kRecv);
  EXPECT_EQ(calls[7].peer, 3);
}

TEST(RankCalls, LeavesOutWhatNcclDoesNotAnnounce) {
  const Workload alone(Of("dp", 1, 1));
  for (const Group& group : alone.GroupsOfStep(0))
    EXPECT_TRUE(CallsOf(group, alone.communicators(), 0, 1).empty());
  const Workload pair(Of("single", 1, 2));
  Group nothing = pair.GroupsOfStep(0).front();
  nothing.calls.front().count = 0;
  EXPECT_TRUE(CallsOf(nothing, pair.communicators(), 0, 1).empty());
}

TEST(RankCalls, PutsCollectivesBeforePointToPoint) {
  const Workload workload(Of("mixed", 1, 4));
  std::vector<RankCall> calls;
  for (const Function function :
       {Function::kSend, Function::kAllReduce, Function::kRecv, Function::kAllReduce}) {
    const uint64_t count = calls.size() + 1;
    const int peer = function == Function::kAllReduce ? -1 : 1;
    calls.push_back({.function = function, .count = count, .datatype = "ncclInt8", .peer = peer});
  }
  const std::vector<Plan> plans = PlansOf(calls, workload.communicators());
  ASSERT_EQ(plans.size(), 1u);
  EXPECT_EQ(plans[0].calls, (std::vector<size_t>{3, 1, 0, 2}));  // the larger AllReduce first
}

TEST(RankCalls, CountsTheMessageOfAllRanksWhereNcclTestsDoes) {
  const auto bytes = [](Function function, std::string_view datatype, int ranks) {
    return MessageBytesOf({.function = function, .count = 10, .datatype = datatype}, ranks);
  };
  EXPECT_EQ(bytes(Function::kAllReduce, "ncclFloat32", 8), 40u);
  EXPECT_EQ(bytes(Function::kAllGather, "ncclBfloat16", 8), 160u);
  EXPECT_EQ(bytes(Function::kReduceScatter, "ncclFloat64", 8), 640u);
  EXPECT_EQ(bytes(Function::kReduceScatter, "ncclFloat64", 0), 80u);
  EXPECT_EQ(bytes(Function::kSend, "ncclFloat8e4m3", 8), 10u);
}

TEST(Workload, CreatesChildrenInTheStepThatIsAskedFor) {
  WorkloadOptions options = Of("dp", 1, 4);
  options.split_at_step = 5;
  options.shrink_at_step = 7;
  const Workload workload(options);
  ASSERT_EQ(workload.communicators().size(), 4u);
  EXPECT_EQ(workload.communicators()[1].members, (std::vector<int>{0, 1}));
  EXPECT_EQ(workload.communicators()[3].members, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(workload.GroupsOfStep(4).size() + 1, workload.GroupsOfStep(5).size());
  EXPECT_EQ(workload.GroupsOfStep(4).size() + 2, workload.GroupsOfStep(7).size());
}

TEST(Workload, JoinsNeighbouringGroupsWhenAskedTo) {
  WorkloadOptions options = Of("dp", 1, 2);
  options.aggregate = 3;
  const std::vector<Group> groups = Workload(options).GroupsOfStep(0);
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].calls.size(), 3u);
  EXPECT_EQ(groups[2].calls.size(), 2u);
}

}  // namespace
}  // namespace nccl_exporter::sim
