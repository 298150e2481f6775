// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "exporter/findings/node_troubles.h"
#include "exporter/findings/testing/hand_made_node.h"
#include "exporter/ledger/local_communicators.h"

namespace nccl_exporter::exporter {
namespace {

class SocketFallbackTest : public testing::Test {
 protected:
  // Two of four processes of a communicator of 16 ranks hold no device open.
  SocketFallbackTest() : made_(4) {
    made_.AddCommunicator("dp", {0, 1, 2, 3}, 16);
    for (size_t i = 0; i < 4; ++i) {
      Host(i).verbs_devices = i < 2 ? 0 : 8;
      made_.Of(i, "dp").created_realtime_ns = kNow - 120 * kSecond;
      made_.Of(i, "dp").adapter = "mlx5_" + std::to_string(i);
    }
  }
  collector::HostSignals& Host(size_t process) {
    auto& host = made_.node.processes[process].host;
    return host ? *host : host.emplace();
  }
  std::vector<Finding> Findings() const { return SocketFallbacks(CommunicatorsOnNode(made_.node)); }

  HandMadeNode made_;
};

TEST_F(SocketFallbackTest, IsOneFindingOfTheJob) {
  const std::vector<Finding> findings = Findings();
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].kind, FindingKind::kSocketFallback);
  EXPECT_EQ(findings[0].severity, Severity::kWarning);
  EXPECT_EQ(
      findings[0].headline,
      "Job 4712 sends to other nodes over sockets: no adapter for verbs is used by 2 processes on "
      "this node, which has one.");
  EXPECT_EQ(findings[0].since_realtime_ns, kNow - 120 * kSecond);
  EXPECT_EQ(findings[0].runbook, "NCCLSocketFallback");
}

TEST_F(SocketFallbackTest, IsNoneWhereAllHoldAnAdapterOpen) {
  Host(0).verbs_devices = Host(1).verbs_devices = 8;
  EXPECT_TRUE(Findings().empty());
}

TEST_F(SocketFallbackTest, IsNoneWhereTheNodeHasNoAdapterOrItIsNotSeen) {
  for (size_t i = 0; i < 4; ++i) Host(i).verbs_devices.reset();
  EXPECT_TRUE(Findings().empty());
  for (size_t i = 0; i < 4; ++i) made_.node.processes[i].host.reset();
  EXPECT_TRUE(Findings().empty());
}

TEST_F(SocketFallbackTest, IsNoneOfACommunicatorOnOneNode) {
  for (size_t i = 0; i < 4; ++i) {
    made_.Of(i, "dp").ranks = 4;
    made_.Of(i, "dp").nodes = 1;
  }
  EXPECT_TRUE(Findings().empty());
}

}  // namespace
}  // namespace nccl_exporter::exporter
