// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "exporter/findings/findings_json.h"

namespace nccl_exporter::exporter {
namespace {

using nlohmann::json;

std::string FileText(const std::string& name) {
  std::ifstream file("exporter/findings/received_corpus/" + name);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

json Late() { return json::parse(FileText("late")); }

ReceivedFindings Read(const std::string& text) {
  std::string fault;
  const std::optional<ReceivedFindings> received = FindingsFromJson(text, fault);
  EXPECT_TRUE(received) << fault;
  return received.value_or(ReceivedFindings());
}

std::string FaultOf(const json& answer) {
  std::string fault;
  EXPECT_FALSE(FindingsFromJson(answer.dump(), fault)) << answer;
  return fault;
}

TEST(FindingsFromJsonTest, ReadsAllThatTopShows) {
  const ReceivedFindings received = Read(FileText("late"));
  EXPECT_EQ(received.start_realtime_ns, 1699990000000000000);
  EXPECT_EQ(received.watches.ids, (std::vector<std::string>{"25:1/nccl-exporter-*", "26:1041"}));
  EXPECT_EQ(received.judgement.seconds, 600);
  EXPECT_EQ(received.judgement.compared_operations, 1204u);
  ASSERT_EQ(received.judgement.findings.size(), 1u);
  const Finding& finding = received.judgement.findings[0];
  EXPECT_EQ(finding.kind, FindingKind::kLateRank);
  EXPECT_EQ(finding.severity, Severity::kWarning);
  EXPECT_EQ(finding.communicator,
            (collector::CommunicatorKey{
                .id = 0xabcdef, .ranks = 8, .uid = 1000, .job = "4712", .name_space = ""}));
  EXPECT_EQ(finding.since_realtime_ns, 1700000000250000000);
  EXPECT_EQ(finding.cost, "10.6 % of the time");
  ASSERT_EQ(finding.culprits.size(), 1u);
  EXPECT_EQ(finding.culprits[0].standing, Standing::kLate);
  EXPECT_EQ(finding.culprits[0].pid, 105u);
  EXPECT_EQ(finding.waiting.size(), 2u);
  EXPECT_EQ(finding.evidence[0].second, "98 % of 1204 operations");
}

TEST(FindingsFromJsonTest, ReadsIdNumbersAndCollectWhichOlderDaemonsLack) {
  EXPECT_EQ(Read(FileText("late")).judgement.findings[0].id, "");
  json answer = Late();
  answer["findings"][0]["id"] = "0123456789abcdef";
  answer["findings"][0]["numbers"] = {{"lost_gpus", 2.5}};
  answer["findings"][0]["collect"] = {{{"what", "stack"}, {"command", "py-spy dump --pid 7"}}};
  answer["findings"][0]["labels"] = {{"team", "speech"}};
  const ReceivedFindings received = Read(answer.dump());
  const Finding& finding = received.judgement.findings.at(0);
  EXPECT_THAT(finding.labels, testing::ElementsAre(testing::Pair("team", "speech")));
  EXPECT_EQ(finding.id, "0123456789abcdef");
  EXPECT_THAT(finding.numbers, testing::ElementsAre(testing::Pair("lost_gpus", 2.5)));
  EXPECT_THAT(finding.collect, testing::ElementsAre(testing::Pair("stack", "py-spy dump --pid 7")));
  answer["findings"][0]["numbers"] = {{"lost_gpus", "many"}};
  EXPECT_THAT(FaultOf(answer), testing::HasSubstr("string"));
}

TEST(FindingsFromJsonTest, ReadsWhatANewerDaemonAdds) {
  const ReceivedFindings received = Read(FileText("newer"));
  ASSERT_EQ(received.judgement.findings.size(), 1u);
  const Finding& finding = received.judgement.findings[0];
  EXPECT_EQ(finding.kind, FindingKind::kCount);
  EXPECT_THAT(finding.headline, testing::StartsWith("Global rank 5"));
  ASSERT_EQ(finding.culprits.size(), 1u) << "a standing that is not known is left out";
  EXPECT_EQ(finding.culprits[0].rank, 6u);
}

TEST(FindingsFromJsonTest, TextsHoldNoControlSequences) {
  EXPECT_EQ(Read(FileText("files")).judgement.findings.at(0).headline,
            "3 files in /run/nccl-exporter cannot be read?[2J");
}

TEST(FindingsFromJsonTest, RefusesWhatIsNotAsDocumented) {
  std::string fault;
  EXPECT_FALSE(FindingsFromJson("<html>", fault));
  EXPECT_EQ(fault, "it is no JSON");
  EXPECT_FALSE(FindingsFromJson(FileText("hostile"), fault));
  const auto fault_with = [](const std::string& at, const json& value) {
    json answer = Late();
    answer[json::json_pointer(at)] = value;
    return FaultOf(answer);
  };
  EXPECT_EQ(fault_with("/findings/0/uid", -1), "'uid' is no count");
  EXPECT_EQ(fault_with("/findings/0/severity", "dreadful"), "'severity' is not known");
  EXPECT_EQ(fault_with("/findings/0/comm", "xyz"), "'comm' is no number of 16 digits");
  EXPECT_THAT(fault_with("/findings/0/headline", nullptr), testing::HasSubstr("is null"));
  EXPECT_EQ(fault_with("/findings/0/since", 1e18), "'since' is no number of seconds");
  EXPECT_EQ(fault_with("/findings/0/culprits/0/gpu", 1ull << 40), "'gpu' is no count");
  EXPECT_EQ(fault_with("/looked_at/seconds", -2), "'seconds' is no number of seconds");
  EXPECT_THAT(fault_with("/findings/0/waiting", "all"), testing::HasSubstr("with string"));
  EXPECT_THAT(fault_with("/watches", 3), testing::HasSubstr("with number"));
  json older = Late();
  older.erase("watches");
  EXPECT_THAT(FaultOf(older), testing::HasSubstr("key 'watches' not found"));
}

TEST(FindingsFromJsonTest, RefusesMoreThanItsLimit) {
  std::string fault;
  EXPECT_FALSE(FindingsFromJson(std::string(kMostAnswerBytes + 1, ' '), fault));
  EXPECT_EQ(fault, "it is too long");
}

}  // namespace
}  // namespace nccl_exporter::exporter
