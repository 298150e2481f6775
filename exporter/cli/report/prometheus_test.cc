// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/report/prometheus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace nccl_exporter::exporter {
namespace {

PlainAnswer Answer(std::string body, int status = 200) {
  return {.status_line = "HTTP/1.1 " + std::to_string(status),
          .status = status,
          .body = std::move(body),
          .fault = "",
          .is_connected = true};
}

std::string FaultOf(const PlainAnswer& answer) {
  try {
    SamplesIn(answer, "http://prometheus:9090");
  } catch (const std::runtime_error& wrong) {
    return wrong.what();
  }
  ADD_FAILURE() << "is understood: " << answer.body;
  return "";
}

// As Prometheus 2.42 answered. Samples are in the order of their labels: each server has another.
TEST(PrometheusTest, AnInstantQueryHasLabelsTimesAndValues) {
  const QueryAnswer answer =
      SamplesIn(Answer(R"({"status":"success","data":{"resultType":"vector","result":[)"
                       R"({"metric":{"comm":"0123","rank":"3"},"value":[1700000000.123,"17"]},)"
                       R"({"metric":{"comm":"0122"},"value":[1700000000.123,"+Inf"]},)"
                       R"({"metric":{},"value":[1700000000.123,"1.5e-3"]}]}})"),
                "");
  ASSERT_EQ(answer.samples.size(), 3u);
  EXPECT_EQ(answer.samples[0].value, 0.0015);
  EXPECT_GT(answer.samples[1].value, 1e300);
  EXPECT_EQ(answer.samples[2].Label("rank"), "3");
  EXPECT_EQ(answer.samples[2].Label("gpu"), "");
  EXPECT_EQ(answer.samples[2].time, 1700000000.123);
  EXPECT_EQ(answer.samples[2].value, 17);
}

TEST(PrometheusTest, ARangeHasThePointsOfEachSeries) {
  const QueryAnswer answer =
      SamplesIn(Answer(R"({"status":"success","data":{"resultType":"matrix","result":[)"
                       R"({"metric":{"comm":"1"},"values":[[1700000000,"2"],[1700000015,"3"]]},)"
                       R"({"metric":{"comm":"2"},"values":[]}]}})"),
                "");
  ASSERT_EQ(answer.samples.size(), 2u);
  ASSERT_EQ(answer.samples[0].points.size(), 2u);
  EXPECT_EQ(answer.samples[0].points[0].time, 1700000000);
  EXPECT_EQ(answer.samples[0].value, 3);
  EXPECT_EQ(answer.samples[0].time, 1700000015);
  EXPECT_TRUE(answer.samples[1].points.empty());
}

std::vector<std::string> WarningsOf(const std::string& fields) {
  const QueryAnswer answer = SamplesIn(Answer(R"({"status":"success",)" + fields +
                                              R"(,"data":{"resultType":"vector","result":[)"
                                              R"({"metric":{},"value":[1700000000,"1"]}]}})"),
                                       "");
  EXPECT_EQ(answer.samples.size(), 1u);
  return answer.warnings;
}

// Regression: a part of an answer was taken for the whole.
TEST(PrometheusTest, AnIncompleteAnswerSaysSo) {
  EXPECT_THAT(WarningsOf(R"("warnings":[],"infos":null,"isPartial":false)"), testing::IsEmpty());
  EXPECT_THAT(WarningsOf(R"("warnings":["store-1: timeout\n\u001b[2J"],"infos":["b"])"),
              testing::ElementsAre("store-1: timeout??[2J"));  // infos miss nothing
  EXPECT_THAT(WarningsOf(R"("warnings":[1,{}])"), testing::IsEmpty());
  EXPECT_THAT(WarningsOf(R"("isPartial":true)"),
              testing::ElementsAre("some storage nodes did not answer"));
  EXPECT_THAT(WarningsOf(R"("warnings":["1","2","3","4","5"],"isPartial":true)"),
              testing::SizeIs(kMostWarnings));
  EXPECT_THAT(WarningsOf(R"("warnings":"a","isPartial":"no")"), testing::IsEmpty());
  EXPECT_EQ(WarningsOf("\"warnings\":[\"" + std::string(100000, 'a') + "\"]")[0].size(), 512u);
}

TEST(PrometheusTest, NoAnswerHasOneLineWithTheReason) {
  PlainAnswer unreachable;
  unreachable.fault = "Connection refused";
  EXPECT_EQ(FaultOf(unreachable), "cannot reach http://prometheus:9090: Connection refused");
  EXPECT_EQ(FaultOf(Answer("Unauthorized", 401)),
            "http://prometheus:9090 asks for a login (401); give it with --http.config.file");
  EXPECT_EQ(FaultOf(Answer("", 403)), "http://prometheus:9090 refuses this login (403)");
  EXPECT_EQ(FaultOf(Answer("404 page not found", 404)),
            "http://prometheus:9090 has no /api/v1/query (404); is a prefix missing?");
  EXPECT_EQ(FaultOf(Answer("Service Unavailable", 503)),
            "http://prometheus:9090 answers with status 503");
  EXPECT_EQ(
      FaultOf(Answer(R"({"status":"error","errorType":"bad_data","error":"parse\nerror"})", 400)),
      "http://prometheus:9090 answers: parse?error");
  // As Go answers plain HTTP at a port of TLS.
  PlainAnswer of_tls = Answer("", 400);
  of_tls.fault = "an answer without its end";
  EXPECT_EQ(FaultOf(of_tls), "http://prometheus:9090 answers with status 400");
  PlainAnswer ssh = Answer("", 0);
  ssh.status_line = "SSH-2.0-OpenSSH";
  EXPECT_EQ(FaultOf(ssh), "the answer of http://prometheus:9090 is no HTTP");
}

TEST(PrometheusTest, AnswersOfOtherServersAreNotUnderstood) {
  for (
      const char* const body :
      {"", "<html>", "[]", "{}", R"({"status":"success"})",
       R"({"status":"success","data":{"resultType":"scalar","result":[1,"1"]}})",
       R"({"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"value":[1,"1"]}]}})",
       R"({"status":"success","data":{"resultType":"vector","result":[{}]}})",
       R"({"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":1},"value":[1,"1"]}]}})",
       R"({"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"x"]}]}})",
       R"({"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[]}]}})"}) {
    EXPECT_EQ(FaultOf(Answer(body)).find('\n'), std::string::npos);
  }
  EXPECT_NE(FaultOf(Answer(std::string(1000000, '['))).find("too many levels"), std::string::npos);
}

TEST(PrometheusTest, ValuesOfMatchersAreQuoted) {
  EXPECT_EQ(Quoted("a\"b\\c\nd"), R"("a\"b\\c\nd")");
}

}  // namespace
}  // namespace nccl_exporter::exporter
