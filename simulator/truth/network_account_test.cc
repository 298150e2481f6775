// SPDX-License-Identifier: Apache-2.0
#include "simulator/truth/network_account.h"

#include <gtest/gtest.h>

#include <numeric>

namespace nccl_exporter::sim {
namespace {

uint64_t NsOf(const NetworkCounts& counts, NetworkState state) {
  return counts.state_ns[static_cast<size_t>(state)];
}

TEST(NetworkAccount, GivesASendItsStates) {
  NetworkCounts counts;
  counts.Add({.is_send = true, .steps = {{.at_ns = {100, 110, 130, 170, -1}, .bytes = 7}}});
  EXPECT_EQ(NsOf(counts, NetworkState::kGpu), 10u);
  EXPECT_EQ(NsOf(counts, NetworkState::kPeer), 20u);
  EXPECT_EQ(NsOf(counts, NetworkState::kNetwork), 40u);
  EXPECT_EQ(NsOf(counts, NetworkState::kFlush), 0u);
  EXPECT_EQ(counts.total_ns, 70u);
  EXPECT_EQ(counts.bytes, 7u);
}

TEST(NetworkAccount, GivesAReceiveItsStates) {
  NetworkCounts counts;
  counts.Add({.steps = {{.at_ns = {100, 101, 103, 107, 115}}}});
  EXPECT_EQ(NsOf(counts, NetworkState::kPeer), 1u);
  EXPECT_EQ(NsOf(counts, NetworkState::kNetwork), 2u);
  EXPECT_EQ(NsOf(counts, NetworkState::kFlush), 4u);
  EXPECT_EQ(NsOf(counts, NetworkState::kGpu), 8u);
}

// The second step goes through all its states but the end of the last while the first one is the
// oldest; the third starts only when the second is over.
TEST(NetworkAccount, CountsOverlappingStepsOnce) {
  NetworkCounts counts;
  counts.Add({.is_send = true,
              .steps = {{.at_ns = {0, 10, 20, 100}},
                        {.at_ns = {1, 30, 40, 130}},
                        {.at_ns = {150, 160, 165, 200}}}});
  EXPECT_EQ(NsOf(counts, NetworkState::kGpu), 10u + 0 + 10);
  EXPECT_EQ(NsOf(counts, NetworkState::kPeer), 10u + 0 + 5);
  EXPECT_EQ(NsOf(counts, NetworkState::kNetwork), 80u + 30 + 35);
  EXPECT_EQ(counts.between_ns, (std::array<uint64_t, 4>{20, 0, 0, 0}));
  EXPECT_EQ(counts.total_ns, 200u);
  EXPECT_EQ(counts.operations, 1u);
  EXPECT_EQ(counts.steps, 3u);
}

// The first start of the second receive posts it: it never waits to be posted.
TEST(NetworkAccount, GivesTheTimeBetweenTwoStepsToTheFirstStateOfTheLaterOne) {
  NetworkCounts counts;
  counts.Add({.steps = {{.at_ns = {0, 0, 10, 20, 30}}, {.at_ns = {35, 35, 50, 60, 70}}}});
  EXPECT_EQ(counts.between_ns, (std::array<uint64_t, 4>{0, 0, 5, 0}));
}

TEST(NetworkAccount, StatesAddUpToTheTime) {
  NetworkCounts counts;
  for (const bool is_send : {true, false}) {
    NetworkOperation operation{.is_send = is_send};
    for (int64_t i = 0; i < 50; ++i) {
      const int64_t at = i * 37 + i / 7 * 300;  // with gaps
      operation.steps.push_back(
          {.at_ns = {at, at + i % 5 * 20, at + 100 + i % 3 * 9, at + 150, at + 400}});
    }
    counts.Add(operation);
  }
  const auto sum = [](const std::array<uint64_t, 4>& ns) {
    return std::accumulate(ns.begin(), ns.end(), uint64_t{0});
  };
  EXPECT_GT(sum(counts.between_ns), 0u);
  EXPECT_EQ(sum(counts.state_ns) + sum(counts.between_ns), counts.total_ns);
}

}  // namespace
}  // namespace nccl_exporter::sim
