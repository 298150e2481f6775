// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/waiting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace nccl_exporter::exporter {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kGone = "no daemon at 127.0.0.1:9828";

Finding Of(FindingKind kind, Severity severity, const std::string& job = "4711") {
  Finding finding;
  finding.kind = kind;
  finding.severity = severity;
  finding.uid = 1000;
  if (kind == FindingKind::kProcessKilled) {
    finding.job_name = job;
  } else {
    finding.communicator = collector::CommunicatorKey{
        .id = 1, .ranks = 2, .uid = 1000, .job = job, .name_space = "research"};
  }
  return finding;
}

const Finding kHang = Of(FindingKind::kHangCulprit, Severity::kCritical);
const Finding kWait = Of(FindingKind::kHangCulprit, Severity::kWarning);
const Finding kKilled = Of(FindingKind::kProcessKilled, Severity::kWarning);
const Finding kLate = Of(FindingKind::kLateRank, Severity::kWarning);

Finding HangOfAKilledRank() {
  Finding finding = kHang;
  finding.culprits.emplace_back().standing = Standing::kKilled;
  return finding;
}

ShownJudgement Found(std::vector<Finding> findings) {
  return {.judgement = {.findings = std::move(findings)}, .is_of_daemon = true};
}
ShownJudgement Gone() { return {.judgement = {}, .why_not_of_daemon = kGone}; }

// Answers come one after the other, and the last one again and again.
class WaitingTest : public testing::Test {
 protected:
  WaitEnd Wait(std::vector<ShownJudgement> answers) {
    size_t asked = 0;
    const AskDaemon ask = [&] { return answers.at(std::min(asked++, answers.size() - 1)); };
    return Waiting(request_, ask,
                   {.now = [this] { return now_; },
                    .sleep = [this](std::chrono::nanoseconds pause) { now_ += pause; },
                    .warn = [this](const std::string& text) { warnings_.push_back(text); }});
  }
  int CodeOf(const Finding& finding, std::vector<Awaited> awaited) {
    request_.awaited = std::move(awaited);
    return Wait({Found({finding})}).exit_code;
  }

  WaitRequest request_{.timeout = std::chrono::minutes(1)};
  std::chrono::nanoseconds now_{std::chrono::hours(1)};
  std::vector<std::string> warnings_;
};

TEST_F(WaitingTest, EndsWithACodeForEachKindAndTheFinding) {
  const WaitEnd end = Wait({Found({}), Found({kWait}), Found({kLate, kHang})});
  EXPECT_EQ(end.exit_code, 10);
  const json finding = json::parse(end.finding);
  EXPECT_EQ(finding["kind"], "hang_culprit");
  EXPECT_EQ(finding["nccl_job"], "4711");
  EXPECT_TRUE(end.finding.ends_with("}\n"));
  EXPECT_THAT(end.finding.substr(0, end.finding.size() - 1), testing::Not(HasSubstr("\n")));
  EXPECT_EQ(now_, std::chrono::hours(1) + 2 * kDaemonInterval);
  EXPECT_EQ(Wait({Found({kKilled})}).exit_code, 11);
  EXPECT_EQ(CodeOf(kLate, {Awaited::kLate}), 12);
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(WaitingTest, WaitsForWhatIsAskedFor) {
  EXPECT_EQ(CodeOf(kHang, {Awaited::kKilled, Awaited::kLate}), kTimedOut);
  EXPECT_EQ(CodeOf(kKilled, {Awaited::kHang, Awaited::kLate}), kTimedOut);
  EXPECT_EQ(CodeOf(kLate, {Awaited::kHang, Awaited::kKilled}), kTimedOut);
  EXPECT_EQ(CodeOf(Of(FindingKind::kAbandoned, Severity::kInfo),
                   {Awaited::kHang, Awaited::kKilled, Awaited::kLate}),
            kTimedOut);
}

TEST_F(WaitingTest, AllKindsOfAHangAreOne) {
  for (const FindingKind kind : {FindingKind::kHangCulprit, FindingKind::kHangOtherCall,
                                 FindingKind::kHangNobodyBehind, FindingKind::kHangElsewhere})
    EXPECT_EQ(CodeOf(Of(kind, Severity::kCritical), {Awaited::kHang}), 10);
}

TEST_F(WaitingTest, AWaitThatMayEndByItselfIsNoHang) {
  EXPECT_EQ(CodeOf(kWait, {Awaited::kHang}), kTimedOut);
}

TEST_F(WaitingTest, AProcessThatNobodyMissesIsNotKilled) {
  EXPECT_EQ(CodeOf(Of(FindingKind::kProcessKilled, Severity::kInfo), {Awaited::kKilled}),
            kTimedOut);
}

TEST_F(WaitingTest, AKilledProcessIsOneAlsoWhereAHangExplainsIt) {
  EXPECT_EQ(CodeOf(HangOfAKilledRank(), {Awaited::kHang, Awaited::kKilled}), 11);
  EXPECT_EQ(CodeOf(HangOfAKilledRank(), {Awaited::kHang}), 10);
  EXPECT_EQ(CodeOf(kHang, {Awaited::kKilled}), kTimedOut);
}

TEST_F(WaitingTest, AnotherJobsFindingIsPassedOver) {
  request_.wanted = {{"nccl_job", "4711"}};
  const Finding other = Of(FindingKind::kHangCulprit, Severity::kCritical, "4712");
  EXPECT_EQ(Wait({Found({other})}).exit_code, kTimedOut);
  const WaitEnd end = Wait({Found({other, kHang})});
  EXPECT_EQ(end.exit_code, 10);
  EXPECT_EQ(json::parse(end.finding)["nccl_job"], "4711");
  EXPECT_EQ(Wait({Found({kKilled})}).exit_code, 11) << "its job is not in a communicator";
  request_.wanted = {{"nccl_job", "4711"}, {"uid", "1001"}};
  EXPECT_EQ(Wait({Found({kHang})}).exit_code, kTimedOut);
  request_.wanted = {{"namespace", "research"}, {"uid", "1000"}};
  EXPECT_EQ(Wait({Found({kHang})}).exit_code, 10);
  request_.wanted = {{"namespace", ""}};
  EXPECT_EQ(Wait({Found({kHang})}).exit_code, kTimedOut);
}

TEST_F(WaitingTest, ADaemonThatIsGoneIsWaitedForAndMentionedOnceEachTime) {
  const std::vector<ShownJudgement> answers{Found({}), Gone(),    Gone(), Gone(),
                                            Found({}), Found({}), Gone(), Found({kHang})};
  EXPECT_EQ(Wait(answers).exit_code, 10);
  const std::string line = std::string(kGone) + "; still waiting";
  EXPECT_THAT(warnings_, ElementsAre(line, line));
}

TEST_F(WaitingTest, ATimeOutHasItsReason) {
  WaitEnd end = Wait({Found({})});
  EXPECT_EQ(end.exit_code, 124);
  EXPECT_EQ(end.finding, "");
  EXPECT_EQ(end.reason, "no finding in 60 s");
  EXPECT_EQ(now_, std::chrono::hours(1) + std::chrono::minutes(1));
  EXPECT_EQ(Wait({Gone()}).reason, std::string("no answer of a daemon in 60 s: ") + kGone);
  EXPECT_EQ(Wait({Found({}), Gone()}).reason, std::string("no finding in 60 s; now ") + kGone);
  EXPECT_EQ(Wait({Gone(), Found({})}).reason, "no finding in 60 s");
}

TEST_F(WaitingTest, ATimeOutHasTheWaitThatIsNotCriticalYet) {
  Finding wait = kWait;
  wait.headline = "Job 4711 waits.\x1b";
  EXPECT_EQ(Wait({Found({wait})}).reason, "no finding in 60 s; not critical yet: Job 4711 waits.?");
  request_.awaited = {Awaited::kKilled, Awaited::kLate};
  EXPECT_EQ(Wait({Found({wait})}).reason, "no finding in 60 s");
  request_.awaited = {Awaited::kHang};
  request_.wanted = {{"nccl_job", "4712"}};
  EXPECT_EQ(Wait({Found({wait})}).reason, "no finding in 60 s");
}

TEST_F(WaitingTest, LooksOnceMoreAtTheEnd) {
  request_.timeout = std::chrono::seconds(3);
  EXPECT_EQ(Wait({Found({}), Found({}), Found({kHang})}).exit_code, 10);
  EXPECT_EQ(now_, std::chrono::hours(1) + std::chrono::seconds(3));
  request_.timeout = std::chrono::seconds(0);
  EXPECT_EQ(Wait({Found({kHang})}).exit_code, 10) << "one look";
}

TEST_F(WaitingTest, WithoutATimeOutItGoesOn) {
  request_.timeout.reset();
  std::vector<ShownJudgement> answers(50000, Found({}));
  answers.push_back(Found({kHang}));
  EXPECT_EQ(Wait(answers).exit_code, 10);
  EXPECT_GT(now_, std::chrono::hours(24));
}

}  // namespace
}  // namespace nccl_exporter::exporter
