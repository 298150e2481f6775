// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/report/report_of_node.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "exporter/cli/report/report_text.h"
#include "exporter/findings/testing/hand_made_node.h"
#include "proto/loss.h"

namespace nccl_exporter::exporter {
namespace {

using testing::HasSubstr;

constexpr double kLifeSeconds = 3600;

// Four ranks, each for an hour in AllReduces, and the last one for less.
class ReportOfNodeTest : public testing::Test {
 protected:
  ReportOfNodeTest() : node_(4) {
    node_.AddCommunicator("world", {0, 1, 2, 3});
    for (size_t i = 0; i < 4; ++i) {
      Count(i, i == 3 ? 100 : 400);
      node_.Of(i, "world").created_realtime_ns = kNow - 3600 * kSecond;
    }
  }

  void Count(size_t process, uint64_t seconds, Function function = Function::kAllReduce) {
    node_.Of(process, "world").functions.Change(static_cast<size_t>(function)).sizes[3] = {
        .operations = 1000,
        .bytes = uint64_t{1} << 30,
        .timed_operations = 1000,
        .timed_bytes = uint64_t{1} << 30,
        .busy_ns = seconds * 1000000000};
  }
  Report Of(const Judgement& judgement = {}) const {
    const std::vector<Job> jobs = JobsOf(node_.node);
    return ReportOfNode(node_.node, judgement, jobs.at(0), {}, "node-1");
  }
  // Kills all, when the GPUs have begun the oldest operations in flight.
  void Kill() {
    for (collector::ProcessSnapshot& process : node_.node.processes) {
      process.is_alive = false;
      for (collector::CommunicatorSnapshot& communicator : process.communicators) {
        if (!communicator.in_flight.empty()) communicator.in_flight.front().parts_announced = 1;
      }
    }
  }

  HandMadeNode node_;
};

TEST_F(ReportOfNodeTest, RanksWaitForTheOneWithTheLeastTime) {
  const Report report = Of();
  EXPECT_EQ(report.gpu_seconds, 4 * kLifeSeconds);
  EXPECT_TRUE(report.knows_waiting);
  EXPECT_DOUBLE_EQ(report.waiting_gpu_seconds, 900);
  ASSERT_EQ(report.waited_for.size(), 1u);
  EXPECT_EQ(report.waited_for[0].labels.at("global_rank"), "3");
  EXPECT_DOUBLE_EQ(report.waited_for[0].gpu_seconds, 900);
  ASSERT_EQ(report.traffic.size(), 1u);
  EXPECT_EQ(report.traffic[0].operations, 4000);
  EXPECT_EQ(report.traffic[0].bytes, 4.0 * (1 << 30));
  EXPECT_EQ(report.traffic[0].busy_seconds, 1300);
  EXPECT_EQ(report.traffic[0].least_seconds, 100);
}

// Regressions: a rank without times made all others' time a wait, and communicators of one name
// counted alike, however many ranks they have.
TEST_F(ReportOfNodeTest, EachCommunicatorOfANameWaitsForItsOwnLeastRank) {
  HandMadeNode node(5);
  node.AddCommunicator("dp", {0, 1, 2});
  node.AddCommunicator("dp", {3, 4});
  const std::array<uint64_t, 5> seconds{400, 400, 0, 100, 100};
  for (size_t i = 0; i < 5; ++i)
    node.Of(i, "dp").functions.Change(static_cast<size_t>(Function::kAllReduce)).sizes[3] = {
        .operations = 1000,
        .timed_operations = seconds[i] > 0 ? 1000u : 0u,
        .busy_ns = seconds[i] * 1000000000};
  const Report report = ReportOfNode(node.node, {}, JobsOf(node.node).at(0), {}, "node-1");
  ASSERT_EQ(report.traffic.size(), 1u);
  EXPECT_EQ(report.traffic[0].ranks, 5u);
  EXPECT_EQ(report.traffic[0].busy_seconds, 1000);
  EXPECT_EQ(report.traffic[0].least_seconds, 200);
  EXPECT_EQ(report.traffic[0].waiting_share(), 0);
  ASSERT_EQ(report.measures.size(), 3u);
  EXPECT_THAT(report.measures[1].seconds, testing::ElementsAre(0.25)) << "of a rank with times";
  EXPECT_THAT(report.measures[2].seconds, testing::ElementsAre(0));
}

// Regression: the slot that communicators without one share was a GPU of its own.
TEST_F(ReportOfNodeTest, CommunicatorsWithoutASlotHaveNoGpuOfTheirOwn) {
  for (collector::ProcessSnapshot& process : node_.node.processes)
    process.communicators.emplace_back().is_overflow = true;
  EXPECT_EQ(Of().gpu_seconds, 4 * kLifeSeconds);
}

// Waits that the median rank does not share, and stages of a pipeline.
TEST_F(ReportOfNodeTest, JitterAndPipelinesAreNoWaits) {
  Count(3, 397);
  EXPECT_EQ(Of().waiting_gpu_seconds, 0);
  Count(3, 100);
  for (size_t i = 0; i < 3; ++i) Count(i, 400, Function::kSend);
  EXPECT_EQ(Of().waiting_gpu_seconds, 0);
  EXPECT_TRUE(Of().waited_for.empty());
}

// The last rank of dp is late, and its two communicators across nodes wait for it at once.
TEST_F(ReportOfNodeTest, AcrossNodesAStepWaitsOnce) {
  HandMadeNode node(2);
  for (const char* const name : {"dp", "world"}) {
    node.AddCommunicator(name, {0, 1}, 4);
    for (size_t i = 0; i < 2; ++i) {
      for (const Function function : {Function::kAllReduce, Function::kReduceScatter})
        node.Of(i, name).functions.Change(static_cast<size_t>(function)).sizes[3] = {
            .operations = 36000,
            .timed_operations = 36000,
            .busy_ns = i == 1 ? 100'000'000'000u : 400'000'000'000u};
    }
  }
  const Report report = ReportOfNode(node.node, {}, JobsOf(node.node).at(0), {}, "node-1");
  EXPECT_NEAR(report.waiting_gpu_seconds, 300, 1) << "by the longest wait of a step";
  ASSERT_EQ(report.waited_for.size(), 1u);
  EXPECT_NEAR(report.waited_for[0].gpu_seconds, 300, 1);
  EXPECT_EQ(report.step, "step");
  ASSERT_FALSE(report.measures.empty());
  EXPECT_NEAR(report.measures[0].seconds.at(0), 0.1, 1e-3);
}

TEST_F(ReportOfNodeTest, TimesPerStepAreThoseOfTheRarestCollectiveWhereNoStepsAreKnown) {
  const Report report = Of();
  EXPECT_EQ(report.step, "AllReduce of world");
  ASSERT_EQ(report.measures.size(), 3u);
  EXPECT_THAT(report.measures[0].seconds, testing::ElementsAre(3.6));
  EXPECT_EQ(report.measures[1].name, "transfer in AllReduce of world");
  EXPECT_THAT(report.measures[1].seconds, testing::ElementsAre(0.1));
  EXPECT_THAT(report.measures[2].seconds, testing::ElementsAre(testing::DoubleNear(0.225, 1e-9)));
}

TEST_F(ReportOfNodeTest, AFindingOfTheJobIsAnEventForEachCulprit) {
  node_.Start({0, 1, 2}, "world", 600);
  Judgement judgement = NodeJudge().Judge(node_.node);
  ASSERT_FALSE(judgement.findings.empty());
  const Report report = Of(judgement);
  ASSERT_FALSE(report.events.empty());
  EXPECT_EQ(report.events[0].name, "hang_culprit");
  EXPECT_EQ(report.events[0].labels.at("global_rank"), "3");
  EXPECT_NEAR(report.waiting_gpu_seconds, 900 + 3 * 600, 3) << "and it is in no sum of times";
  EXPECT_THAT(ReportText(report, 0), HasSubstr("global rank 3"));
  for (Finding& finding : judgement.findings) finding.uid = 7;
  EXPECT_TRUE(Of(judgement).events.empty()) << "of another user";
}

TEST_F(ReportOfNodeTest, KilledProcessesShowWhoTheyWaitedFor) {
  node_.Start({0, 1, 2}, "world", 600);
  Kill();
  const Report report = Of();
  ASSERT_EQ(report.events.size(), 1u);
  EXPECT_EQ(report.events[0].name, "hang_culprit");
  EXPECT_EQ(report.events[0].severity, "info");
  EXPECT_THAT(report.events[0].text, HasSubstr("If it hung until it was killed: "));
  EXPECT_EQ(report.events[0].labels.at("global_rank"), "3");
  EXPECT_DOUBLE_EQ(report.waiting_gpu_seconds, 900) << "how long is not known";
  EXPECT_NEAR(report.to, static_cast<double>(kNow) / 1e9 - 600, 1) << "the last progress";
  EXPECT_LE(report.events[0].end(), std::max(report.to, report.events[0].begin()));
}

// Rank 2 waits for rank 3 in its communicator; the others wait for rank 2 in theirs.
TEST_F(ReportOfNodeTest, AHangCostsAllGpusThatWaitInAnyCommunicator) {
  node_.AddCommunicator("tp0", {0, 1});
  node_.AddCommunicator("tp1", {2, 3});
  node_.AddCommunicator("dp0", {0, 2});
  node_.Start(2, "tp1", 600);
  node_.Start(0, "dp0", 600);
  node_.Start(1, "tp0", 600);
  const Report report = Of(NodeJudge().Judge(node_.node));
  ASSERT_FALSE(report.events.empty());
  EXPECT_EQ(report.events[0].labels.at("global_rank"), "3");
  EXPECT_NEAR(report.waiting_gpu_seconds, 900 + 3 * 600, 3);
}

// All have called the operation, and only the GPU of the one that ended first has not begun it.
TEST_F(ReportOfNodeTest, AProcessThatEndedFirstIsNamedByWhatItsGpuHasNotBegun) {
  for (size_t i = 0; i < 4; ++i) {
    node_.Start(i, "world", 600);
    node_.Start(i, "world", 600);  // ahead of the GPUs
  }
  Kill();
  Report report = Of();
  ASSERT_EQ(report.events.size(), 1u);
  EXPECT_EQ(report.events[0].name, "hang_nobody_behind");
  node_.Of(2, "world").in_flight[0].parts_announced = 0;
  report = Of();
  ASSERT_EQ(report.events.size(), 1u);
  EXPECT_EQ(report.events[0].name, "hang_culprit");
  EXPECT_EQ(report.events[0].labels.at("global_rank"), "2");
  EXPECT_THAT(report.events[0].text, HasSubstr("3 ranks wait for global rank 2 ("));
  node_.Of(2, "world").timing_source = TimingSource::kProxy;
  EXPECT_NE(Of().events.at(0).name, "hang_culprit") << "what has begun is not seen";
}

// The job was killed while a part of it was under way.
TEST_F(ReportOfNodeTest, APartOfTheJobThatWentOnDidNotHang) {
  node_.AddCommunicator("stuck", {0, 1});
  node_.AddCommunicator("under way", {2, 3});
  node_.Start(0, "stuck", 900);
  node_.Start(2, "under way", 300);
  Kill();
  const Report report = Of();
  ASSERT_EQ(report.events.size(), 1u);
  EXPECT_EQ(report.events[0].labels.at("global_rank"), "1");
}

TEST_F(ReportOfNodeTest, JobsOfOthersAreLeftOut) {
  node_.AddProcess(0, "99");
  const std::vector<Job> jobs = JobsOf(node_.node);
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_TRUE(jobs[0].Has({{"nccl_job", "4712"}, {"namespace", ""}}));
  EXPECT_EQ(jobs[0].processes, 4u);
  EXPECT_EQ(jobs[1].processes, 1u);
  EXPECT_EQ(Of().gpu_seconds, 4 * kLifeSeconds);
}

TEST_F(ReportOfNodeTest, LossesAndVariablesThatDifferAreListed) {
  node_.node.processes[1].losses[static_cast<size_t>(Loss::kInFlightFull)] = 5;
  for (collector::ProcessSnapshot& process : node_.node.processes)
    process.identity.emplace_back("label:team", process.pid == 1002 ? "b" : "a");
  const Report report = Of();
  ASSERT_EQ(report.losses.size(), 1u);
  EXPECT_EQ(report.losses[0].cause, "in_flight_full");
  EXPECT_EQ(report.losses[0].operations, 5);
  const auto team = std::ranges::find(report.facts, "b", &ReportFact::value);
  ASSERT_NE(team, report.facts.end());
  EXPECT_EQ(team->name, "team");
  EXPECT_THAT(team->on, testing::ElementsAre("global rank 2"));
}

class NcclVariablesTest : public ReportOfNodeTest {
 protected:
  void Set(size_t process, std::vector<std::pair<std::string, std::string>> variables) {
    std::ranges::move(variables, std::back_inserter(node_.node.processes[process].identity));
  }
  std::vector<std::string> Facts() {
    std::vector<std::string> seen;
    for (const ReportFact& fact : Of().facts) {
      if (fact.name.starts_with("NCCL_"))
        seen.push_back(fmt::format("{}={} on {}: {}", fact.name, fact.value, fact.processes,
                                   fmt::join(fact.on, " and ")));
    }
    return seen;
  }
};

// Regression: of processes with one pid the last one was left.
TEST_F(NcclVariablesTest, ProcessesWithOnePidAreNamedByTheirPods) {
  for (size_t i = 0; i < 4; ++i) {
    node_.node.processes[i].pid = 1;
    node_.node.processes[i].numbers.global_rank.reset();
    Set(i, {{"POD_NAME", fmt::format("trainer-{}", i)}, {"NCCL_*", i == 1 ? "1~2b" : "0~1a"}});
  }
  Set(1, {{"NCCL_IB_DISABLE", "1"}});
  EXPECT_THAT(Facts(), testing::ElementsAre("NCCL_IB_DISABLE= on 3: ",
                                            "NCCL_IB_DISABLE=1 on 1: pid 1 of trainer-1"));
}

// Rank 2 has an older plugin.
TEST_F(NcclVariablesTest, ThoseThatDifferAreListed) {
  Set(0, {{"NCCL_*", "2~0000000a"}, {"NCCL_ALGO", "Ring"}, {"NCCL_DEBUG", "WARN"}});
  Set(1, {{"NCCL_*", "3~0000000b"},
          {"NCCL_ALGO", "Ring"},
          {"NCCL_DEBUG", "WARN"},
          {"NCCL_IB_DISABLE", "1"}});
  Set(3, {{"NCCL_*", "2~0000000a"}, {"NCCL_ALGO", "Ring"}, {"NCCL_DEBUG", "WARN"}});
  EXPECT_THAT(Facts(), testing::ElementsAre(
                           "NCCL_ALGO=Ring on 3: ", "NCCL_DEBUG=WARN on 3: ",
                           "NCCL_IB_DISABLE= on 2: ", "NCCL_IB_DISABLE=1 on 1: global rank 1"));
}

// It is not known whether rank 1 has NCCL_DEBUG, but that it has another environment.
TEST_F(NcclVariablesTest, WithoutRoomForAllAHashTellsWhetherTheyDiffer) {
  for (const size_t process : {0, 2, 3})
    Set(process, {{"NCCL_*", "2~0000000a"}, {"NCCL_ALGO", "Ring"}, {"NCCL_DEBUG", "WARN"}});
  Set(1, {{"NCCL_*", "3~0000000b"}, {"NCCL_ALGO", "Ring"}});
  EXPECT_THAT(Facts(), testing::ElementsAre(
                           "NCCL_*=2~0000000a on 3: ", "NCCL_*=3~0000000b on 1: global rank 1",
                           "NCCL_ALGO=Ring on 4: ", "NCCL_DEBUG=WARN on 3: "));
}

TEST_F(NcclVariablesTest, BeyondTheLimitOfAJobAHashTellsWhetherTheyDiffer) {
  for (const size_t process : {0, 1, 2, 3}) {
    std::vector<std::pair<std::string, std::string>> variables = {
        {"NCCL_*", fmt::format("64~{}", process)}};
    for (int i = 0; i < 64; ++i) variables.emplace_back(fmt::format("NCCL_{}_{}", process, i), "1");
    Set(process, variables);
  }
  EXPECT_THAT(Facts(), testing::Contains("NCCL_*=64~1 on 1: global rank 1"));
}

// No plugin writes such a segment, but anybody may.
TEST_F(NcclVariablesTest, WithoutTheirNumberAreLeftOut) {
  Set(0, {{"NCCL_DEBUG", "WARN"}});
  EXPECT_THAT(Facts(), testing::IsEmpty());
  Set(1, {{"NCCL_*", "0~00000000"}});
  EXPECT_THAT(Facts(), testing::ElementsAre("NCCL_*=0~00000000 on 1: "));
}

TEST_F(NcclVariablesTest, AreThoseOfTheLastProcessOfARank) {
  for (const size_t process : {0, 1, 2, 3})
    Set(process, {{"NCCL_*", "1~0000000a"}, {"NCCL_DEBUG", "WARN"}});
  collector::ProcessSnapshot before = node_.node.processes[1];
  before.is_alive = false;
  before.identity.back().second = "INFO";
  before.identity.emplace_back("NCCL_ALGO", "Ring");
  node_.node.processes.insert(node_.node.processes.begin(), before);
  EXPECT_THAT(Facts(), testing::ElementsAre("NCCL_*=1~0000000a on 4: ", "NCCL_DEBUG=WARN on 4: "));
}

}  // namespace
}  // namespace nccl_exporter::exporter
