// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/finding_ids.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace nccl_exporter::exporter {
namespace {

constexpr int64_t kSecond = 1000000000;
constexpr int64_t kSince = 1700000000 * kSecond;

Finding Hang(const std::string& job = "4711") {
  Finding finding;
  finding.kind = FindingKind::kHangCulprit;
  finding.communicator = collector::CommunicatorKey{
      .id = 0xabc, .ranks = 8, .uid = 1000, .job = job, .name_space = "research"};
  finding.uid = 1000;
  finding.since_realtime_ns = kSince;
  return finding;
}

Finding Late(uint64_t pid, int gpu) {
  Finding finding = Hang();
  finding.kind = FindingKind::kLateRank;
  FoundRank& rank = finding.culprits.emplace_back();
  rank.pid = pid;
  rank.gpu_index = gpu;
  return finding;
}

Finding Files(const std::string& reason) {
  Finding finding;
  finding.kind = FindingKind::kSegmentsUnusable;
  finding.evidence = {{"reason", reason}, {"files and directories with this fault now", "1"}};
  return finding;
}

class FindingIdsTest : public testing::Test {
 protected:
  FindingIds ids_{std::chrono::seconds(90)};
};

TEST_F(FindingIdsTest, AreTheSameInEveryProcess) {
  EXPECT_EQ(ids_.IdOf(Hang()), "18b918e845ac81a6");
  EXPECT_EQ(FindingIds(std::chrono::seconds(1)).IdOf(Hang()), ids_.IdOf(Hang()));
}

// `since` comes from a clock of another reading each time.
TEST_F(FindingIdsTest, AStartIsTakenToTheSecond) {
  Finding hang = Hang();
  hang.since_realtime_ns += kSecond / 2;
  EXPECT_EQ(ids_.IdOf(hang), ids_.IdOf(Hang()));
  hang.since_realtime_ns += kSecond;
  EXPECT_NE(ids_.IdOf(hang), ids_.IdOf(Hang()));
}

TEST_F(FindingIdsTest, DifferByKindJobGpuAndReason) {
  Finding other_call = Hang(), other_user = Hang(), other_space = Hang();
  other_call.kind = FindingKind::kHangOtherCall;
  other_user.uid = 1001;
  other_space.communicator->name_space = "";
  std::set<std::string> found;
  for (const Finding& finding :
       {Hang(), Hang("4712"), other_call, other_user, other_space, Late(7, 0), Late(7, 1),
        Late(8, 0), Files("bad_magic"), Files("truncated")})
    found.insert(ids_.IdOf(finding));
  EXPECT_EQ(found.size(), 10u);
}

TEST_F(FindingIdsTest, StayWhileTheHangGoesOn) {
  const std::string id = ids_.IdOf(Hang());
  ids_.Record({Hang()}, 0);
  // The rank that has waited longest has ended, and another communicator has more waiting ranks.
  Finding later = Hang();
  later.since_realtime_ns += 40 * kSecond;
  later.communicator->id = 0xdef;
  later.severity = Severity::kCritical;
  later.culprits.emplace_back();
  ids_.Record({later}, 60 * kSecond);
  EXPECT_EQ(ids_.IdOf(later), id);
  ids_.Record({}, 120 * kSecond);
  EXPECT_EQ(ids_.IdOf(later), id) << "it may come back";
  ids_.Record({}, 151 * kSecond);
  EXPECT_NE(ids_.IdOf(later), id) << "a later hang of the job is another one";
}

TEST_F(FindingIdsTest, TheMemoryOfAUserIsBounded) {
  std::vector<Finding> many;
  for (int job = 0; job < 1000; ++job) many.push_back(Hang(std::to_string(job)));
  ids_.Record(many, 0);
  Finding of_another = Hang("x"), late_comer = Hang("y");
  of_another.uid = 100;  // not the end of a longer number
  ids_.Record({of_another, late_comer}, kSecond);
  const std::string id = ids_.IdOf(of_another), id_without_place = ids_.IdOf(late_comer);
  of_another.since_realtime_ns += 9 * kSecond;
  late_comer.since_realtime_ns += 9 * kSecond;
  EXPECT_EQ(ids_.IdOf(of_another), id);
  EXPECT_NE(ids_.IdOf(late_comer), id_without_place);
}

TEST_F(FindingIdsTest, AreFoundAgainAfterARestartOfTheDaemon) {
  ids_.Record({Hang()}, 0);
  FindingIds of_next_daemon(std::chrono::seconds(90));
  of_next_daemon.Record({Hang()}, 0);
  EXPECT_EQ(of_next_daemon.IdOf(Hang()), ids_.IdOf(Hang()));
}

}  // namespace
}  // namespace nccl_exporter::exporter
