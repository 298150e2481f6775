// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exporter/findings/findings_json.h"
#include "exporter/findings/in_flight_table.h"
#include "exporter/findings/node_judge.h"
#include "exporter/findings/node_troubles.h"
#include "exporter/findings/testing/hand_made_node.h"

namespace nccl_exporter::exporter {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

// Two communicators of all ranks, with times of this source.
HandMadeNode NodeOf(TimingSource source, TimingReason reason, const char* in = "") {
  HandMadeNode job(4);
  for (const char* const name : {"dp", "tp"}) {
    job.AddCommunicator(name, {0, 1, 2, 3});
    if (*in != 0 && in != std::string(name)) continue;
    for (size_t rank = 0; rank < 4; ++rank) {
      job.Of(rank, name).timing_source = source;
      job.Of(rank, name).timing_reason = reason;
    }
  }
  return job;
}

std::vector<Finding> FindingsOn(const HandMadeNode& job) {
  return NodeJudge().Judge(job.node).findings;
}

// Regression: the page was green, and nothing was compared.
TEST(NotJudgedTest, AJobWithoutGpuTimesIsNotJudgedAndSaysHowItWouldBe) {
  for (const TimingSource source : {TimingSource::kNone, TimingSource::kProxy}) {
    const std::vector<Finding> findings =
        FindingsOn(NodeOf(source, TimingReason::kAllgathervEnabled));
    ASSERT_EQ(findings.size(), 1u) << NameOf(source);
    const Finding& finding = findings.front();
    EXPECT_EQ(finding.kind, FindingKind::kNotJudged);
    EXPECT_EQ(finding.severity, Severity::kInfo);
    EXPECT_EQ(finding.headline,
              "Late ranks of job 4712 cannot be seen: no GPU times (allgatherv_enabled).");
    EXPECT_EQ(finding.next, "Set NCCL_ALLGATHERV_ENABLE=0 in the job.");
    EXPECT_EQ(finding.runbook, "NCCLJobNotJudged");
    EXPECT_THAT(finding.evidence,
                testing::Contains(Pair("communicators without GPU times", "2 of 2: dp, tp")));
  }
}

TEST(NotJudgedTest, AJobWithGpuTimesIsJudged) {
  EXPECT_THAT(FindingsOn(NodeOf(TimingSource::kKernel, TimingReason::kDefault)), IsEmpty());
  EXPECT_THAT(FindingsOn(NodeOf(TimingSource::kKernelCpu, TimingReason::kConfigured)), IsEmpty());
}

TEST(NotJudgedTest, ACommunicatorWithoutTimesIsNamedAmongOthersWithThem) {
  const std::vector<Finding> findings =
      FindingsOn(NodeOf(TimingSource::kNone, TimingReason::kDrift, "tp"));
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings.front().headline,
            "Late ranks of tp of job 4712 cannot be seen: no GPU times (drift).");
  EXPECT_EQ(findings.front().communicator_name, "tp");
  EXPECT_TRUE(findings.front().communicator);
}

TEST(NotJudgedTest, OneRankWithoutTimesIsEnough) {
  HandMadeNode job = NodeOf(TimingSource::kKernel, TimingReason::kDefault);
  job.Of(2, "dp").timing_source = TimingSource::kNone;
  job.Of(2, "dp").timing_reason = TimingReason::kCpusLow;
  const std::vector<Finding> findings = FindingsOn(job);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings.front().next, "Give each rank at least two CPUs.");
}

// A rank that is alone waits for nobody, and one whose process has ended is late no more.
TEST(NotJudgedTest, RanksThatAreAloneOrEndedNeedNoTimes) {
  HandMadeNode job(2);
  job.AddCommunicator("self", {0});
  job.Of(0, "self").timing_source = TimingSource::kNone;
  job.AddCommunicator("dp", {0, 1});
  job.Of(0, "dp").timing_source = TimingSource::kKernel;
  job.Of(1, "dp").timing_source = TimingSource::kNone;
  job.Of(1, "dp").is_closed = true;
  job.node.processes[1].is_alive = false;
  EXPECT_THAT(FindingsOn(job), IsEmpty());
}

TEST(NotJudgedTest, JobsAreJudgedApart) {
  HandMadeNode job(1);
  job.AddProcess(0, "4713");
  for (const size_t process : {0, 1}) {
    job.AddCommunicator("dp", {process}, 8);
    job.Of(process, "dp").timing_source = TimingSource::kNone;
    job.Of(process, "dp").timing_reason = TimingReason::kSharedMemoryLow;
  }
  std::vector<std::string> jobs;
  for (const Finding& finding : FindingsOn(job)) jobs.push_back(finding.job);
  EXPECT_THAT(jobs, ElementsAre("job 4712", "job 4713"));
}

TEST(NotJudgedTest, TextAndJsonSayThatLateRanksCannotBeSeen) {
  const Judgement judgement =
      NodeJudge().Judge(NodeOf(TimingSource::kNone, TimingReason::kAllgathervEnabled).node);
  EXPECT_THAT(FindingsText(judgement),
              HasSubstr("Info: Late ranks of job 4712 cannot be seen: no GPU times "
                        "(allgatherv_enabled).\n"));
  EXPECT_THAT(FindingsText(judgement), HasSubstr("next: Set NCCL_ALLGATHERV_ENABLE=0 in the job."));
  EXPECT_EQ(FindingsJson(judgement)[0]["kind"], "not_judged");
}

// All reasons for which there may be no times, whatever is added to them.
TEST(NotJudgedTest, EachReasonHasACure) {
  for (const CodeRow<TimingReason>& row : kTimingReasons)
    EXPECT_THAT(UntimedCure(row.name), testing::EndsWith(".")) << row.name;
  EXPECT_EQ(UntimedCure("registration_enabled"),
            "Set NCCL_LOCAL_REGISTER=0 and NCCL_GRAPH_REGISTER=0 in the job.");
  EXPECT_EQ(UntimedCure("of a later version"), "See docs/kernel-timing.md for this reason.");
}

}  // namespace
}  // namespace nccl_exporter::exporter
