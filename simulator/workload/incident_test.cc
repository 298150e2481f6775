// SPDX-License-Identifier: Apache-2.0
#include "simulator/workload/incident.h"

#include <gtest/gtest.h>

namespace nccl_exporter::sim {
namespace {

constexpr ClusterShape kShape{.nodes = 2, .ranks_per_node = 4};
constexpr int64_t kSecond = 1000000000;

Incident Parsed(std::string_view text) {
  std::string error;
  const std::optional<Incident> incident = ParseIncident(text, kShape, error);
  EXPECT_EQ(error, "");
  return incident.value_or(Incident{});
}

std::string ErrorOf(std::string_view text) {
  std::string error;
  EXPECT_FALSE(ParseIncident(text, kShape, error));
  return error;
}

TEST(Incident, TakesSettingsOverItsStandards) {
  const Incident incident = Parsed("slow-rank:rank=5,percent=7.5,from=20");
  EXPECT_EQ(incident.kind, IncidentKind::kSlowRank);
  EXPECT_EQ(incident.rank(), 5);
  EXPECT_EQ(incident[Setting::kPercent], 7.5);
  EXPECT_EQ(incident.from_ns(), 20 * kSecond);
  EXPECT_EQ(Parsed("slow-link")[Setting::kTimes], 4);
}

TEST(Incident, RefusesWhatItDoesNotKnow) {
  EXPECT_NE(ErrorOf("slow-cat").find("no such incident"), std::string::npos);
  EXPECT_NE(ErrorOf("slow-rank:times=2").find("no setting times"), std::string::npos);
  EXPECT_NE(ErrorOf("slow-rank:percent=much").find("bad percent=much"), std::string::npos);
  EXPECT_NE(ErrorOf("slow-rank:percent").find("bad percent"), std::string::npos);
  EXPECT_NE(ErrorOf("kill:rank=8").find("rank 8, but the job has 8 ranks"), std::string::npos);
  EXPECT_NE(ErrorOf("slow-link:to=2").find("node 2, but the job has 2 nodes"), std::string::npos);
}

TEST(Incident, ConcernsItsRankItsNodeOrAll) {
  EXPECT_TRUE(Parsed("slow-rank:rank=5").Concerns(5, kShape));
  EXPECT_FALSE(Parsed("slow-rank:rank=5").Concerns(4, kShape));
  EXPECT_TRUE(Parsed("slow-node:node=1").Concerns(4, kShape));
  EXPECT_FALSE(Parsed("slow-node:node=1").Concerns(3, kShape));
  EXPECT_TRUE(Parsed("pause").Concerns(0, kShape));
  EXPECT_TRUE(Parsed("varying").Concerns(7, kShape));
}

TEST(Incident, IsConstantIntermittentOrDrifting) {
  const Incident constant = Parsed("slow-rank:from=10,until=20");
  EXPECT_EQ(constant.Strength(9 * kSecond), 0);
  EXPECT_EQ(constant.Strength(10 * kSecond), 1);
  EXPECT_EQ(constant.Strength(20 * kSecond), 0);
  const Incident intermittent = Parsed("slow-rank:from=10,every=4,for=1");
  EXPECT_EQ(intermittent.Strength(14 * kSecond), 1);
  EXPECT_EQ(intermittent.Strength(15 * kSecond), 0);
  const Incident drifting = Parsed("slow-rank:from=10,ramp=20");
  EXPECT_EQ(drifting.Strength(15 * kSecond), 0.25);
  EXPECT_EQ(drifting.Strength(40 * kSecond), 1);
}

TEST(Incident, StrikesOnceOrEverySoOften) {
  EXPECT_EQ(Parsed("pause:from=3").StrikesBetween(-1, 3 * kSecond), 1);
  EXPECT_EQ(Parsed("pause:from=3").StrikesBetween(3 * kSecond, 9 * kSecond), 0);
  const Incident often = Parsed("pause:from=3,every=2,until=8");
  EXPECT_EQ(often.StrikesBetween(-1, 2 * kSecond), 0);
  EXPECT_EQ(often.StrikesBetween(4 * kSecond, 5 * kSecond), 1);
  EXPECT_EQ(often.StrikesBetween(0, 100 * kSecond), 3);
  EXPECT_EQ(Parsed("pause").StrikesBetween(-1, 0), 1);
}

TEST(Incident, HelpNamesEveryKind) {
  const std::string help = IncidentHelp();
  for (size_t i = 0; i < kCountOf<IncidentKind>; ++i) {
    const std::string_view name = TraitsOf(static_cast<IncidentKind>(i)).name;
    EXPECT_NE(help.find("\n  " + std::string(name)), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace nccl_exporter::sim
