// SPDX-License-Identifier: Apache-2.0
#include "collector/labels/label_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace nccl_exporter::collector {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

ProcessSnapshot Process() {
  ProcessSnapshot process;
  process.uid = 1000;
  process.pid = 7;
  process.host_name = "gpu-node-7";
  process.identity = {
      {"SLURM_JOB_ID", "4711"}, {"POD_NAMESPACE", "research"}, {"POD_NAME", "trainer-0"}};
  process.communicators.resize(2);
  process.communicators[1].gpu_uuid = "GPU-1";
  return process;
}

std::string FaultOf(const std::string& text) {
  try {
    ParseLabelRules(text);
    return "";
  } catch (const std::runtime_error& wrong) {
    return wrong.what();
  }
}

std::string Rule(const std::string& match, const std::string& labels = R"({"team": "x"})") {
  return R"({"match": )" + match + R"(, "labels": )" + labels + "}";
}

TEST(LabelRulesTest, EachWayNamesAProcess) {
  for (const char* const match :
       {R"({"slurm_job_id": "4711"})", R"({"slurm_job_id": 4711})", R"({"uid": 1000})",
        R"({"namespace": "research", "pod": "trainer-0"})", R"({"gpu_uuid": "GPU-1"})",
        R"({"node": "gpu-node-7"})", R"({"pid": 7, "gpu_uuid": "GPU-1"})"})
    EXPECT_THAT(LabelsOf(Process(), ParseLabelRules(Rule(match))),
                UnorderedElementsAre(Pair("team", "x")))
        << match;
  for (const char* const match :
       {R"({"slurm_job_id": "471"})", R"({"uid": 1001})", R"({"gpu_uuid": "GPU-2"})",
        R"({"namespace": "research", "pod": "trainer-1"})", R"({"node": "gpu-node-8"})"})
    EXPECT_THAT(LabelsOf(Process(), ParseLabelRules(Rule(match))), IsEmpty()) << match;
}

TEST(LabelRulesTest, TheNearerWayWins) {
  const auto rules =
      ParseLabelRules("[" + Rule(R"({"node": "gpu-node-7"})", R"({"team": "node", "rack": "r1"})") +
                      "," + Rule(R"({"uid": 1000})", R"({"team": "user", "account": "a"})") + "," +
                      Rule(R"({"slurm_job_id": 4711})", R"({"team": "job"})") + "]");
  EXPECT_THAT(LabelsOf(Process(), rules),
              UnorderedElementsAre(Pair("team", "job"), Pair("account", "a"), Pair("rack", "r1")));
}

// Labels whose names are this letter and a number from 0.
std::string LabelsFrom(char letter, int count) {
  std::string labels;
  for (int i = 0; i < count; ++i)
    labels +=
        std::string(labels.empty() ? "" : ",") + '"' + letter + std::to_string(i) + "\": \"x\"";
  return "{" + labels + "}";
}

TEST(LabelRulesTest, AProcessHasEightLabelsAtMost) {
  const SiteLabels labels = LabelsOf(
      Process(), ParseLabelRules("[" + Rule(R"({"uid": 1000})", LabelsFrom('u', 6)) + "," +
                                 Rule(R"({"slurm_job_id": 4711})", LabelsFrom('j', 6)) + "]"));
  ASSERT_EQ(labels.size(), 8u);
  EXPECT_EQ(labels[5].first, "j5");
  EXPECT_EQ(labels[6].first, "u0");
}

TEST(LabelRulesTest, EachFaultIsSaid) {
  EXPECT_EQ(FaultOf("{"), "is no JSON");
  EXPECT_EQ(FaultOf(""), "is no JSON");
  EXPECT_THAT(FaultOf("7"), HasSubstr("a rule must be"));
  EXPECT_THAT(FaultOf(R"({"match": {"uid": 1}})"), HasSubstr("a rule must be"));
  EXPECT_THAT(FaultOf(R"({"match": {"uid": 1}, "labels": {"a": "b"}, "x": 1})"),
              HasSubstr("a rule must be"));
  for (const char* const match :
       {"{}", R"({"job": 1})", R"({"uid": 1, "node": "x"})", R"({"namespace": "x"})", "7"})
    EXPECT_THAT(FaultOf(Rule(match)), HasSubstr("\"match\" must be")) << match;
  EXPECT_THAT(FaultOf(Rule(R"({"uid": -1})")), HasSubstr("\"uid\" is neither"));
  EXPECT_THAT(FaultOf(Rule(R"({"node": ""})")), HasSubstr("\"node\" is neither"));
  for (const char* const name : {"rank", "uid", "job", "instance", "cluster", "alertname",
                                 "nccl_job", "__name__", "a-b", "1a", ""})
    EXPECT_THAT(FaultOf(Rule(R"({"uid": 1})", std::string("{\"") + name + R"(": "x"})")),
                HasSubstr("is reserved or no name"))
        << name;
  const auto named = [](size_t bytes) { return "{\"" + std::string(bytes, 'n') + R"(": "x"})"; };
  EXPECT_EQ(FaultOf(Rule(R"({"uid": 1})", named(64))), "");
  EXPECT_THAT(FaultOf(Rule(R"({"uid": 1})", named(65))), HasSubstr("is reserved or no name"));
  EXPECT_EQ(FaultOf(Rule(R"({"uid": 1})", LabelsFrom('a', 8))), "");
  EXPECT_EQ(FaultOf(Rule(R"({"uid": 1})", LabelsFrom('a', 9))), "more than 8 labels");
  EXPECT_EQ(FaultOf(Rule(R"({"uid": 1})", R"({"a": ")" + std::string(64, 'x') + "\"}")), "");
  EXPECT_THAT(FaultOf(Rule(R"({"uid": 1})", R"({"a": ")" + std::string(65, 'x') + "\"}")),
              HasSubstr("1 to 64 bytes"));
  EXPECT_THAT(FaultOf(Rule(R"({"uid": 1})", R"({"a": 7})")), HasSubstr("1 to 64 bytes"));
  EXPECT_THAT(FaultOf(Rule(R"({"uid": 1})", "{}")), HasSubstr("no object with labels"));
  EXPECT_THAT(FaultOf("[" + Rule(R"({"uid": 1})") + "," + Rule(R"({"uid": "1"})") + "]"),
              HasSubstr("two rules"));
  EXPECT_EQ(FaultOf("[]"), "");
  EXPECT_NE(FaultOf(std::string(kLabelFileBytes, '[')), "");
}

}  // namespace
}  // namespace nccl_exporter::collector
