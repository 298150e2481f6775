// SPDX-License-Identifier: Apache-2.0
#include "collector/segments/shared_numbers.h"

#include <gtest/gtest.h>

#include <string>

namespace nccl_exporter::collector {
namespace {

ProcessSnapshot Ranked(uint32_t global_rank, uint32_t local_rank, const std::string& job = "7") {
  ProcessSnapshot process;
  process.is_alive = true;
  process.identity = {{"SLURM_JOB_ID", job}};
  process.numbers = {.global_rank = global_rank, .local_rank = local_rank, .world_size = 8};
  process.communicators.emplace_back().numbers = process.numbers;
  return process;
}

bool IsKnown(const ProcessSnapshot& process) {
  EXPECT_EQ(process.numbers.global_rank.has_value(),
            process.communicators.at(0).numbers.global_rank.has_value());
  return process.numbers.global_rank.has_value();
}

// Regresses: the four processes of one task of Slurm all had its number.
TEST(SharedNumbers, AreThoseOfNoRank) {
  NodeSnapshot node;
  node.processes = {Ranked(5, 0), Ranked(5, 0), Ranked(5, 1), Ranked(6, 2)};
  DropSharedNumbers(node);
  for (const size_t i : {0u, 1u, 2u}) EXPECT_FALSE(IsKnown(node.processes[i])) << i;
  EXPECT_TRUE(IsKnown(node.processes[3]));
  EXPECT_FALSE(node.processes[0].numbers.local_rank);
  EXPECT_EQ(node.processes[2].numbers.local_rank, 1u) << "a number of its own on the node";
}

TEST(SharedNumbers, AreNotThoseOfOtherJobsUsersAndNamespaces) {
  NodeSnapshot node;
  node.processes = {Ranked(5, 0), Ranked(5, 0, "8"), Ranked(5, 0), Ranked(5, 0)};
  node.processes[2].uid = 1;
  node.processes[3].identity.emplace_back("POD_NAMESPACE", "team-a");
  DropSharedNumbers(node);
  for (const ProcessSnapshot& process : node.processes) EXPECT_TRUE(IsKnown(process));
}

// A job that restarts has the same numbers, and its dead processes keep theirs.
TEST(SharedNumbers, AreNotThoseOfTheDead) {
  NodeSnapshot node;
  node.processes = {Ranked(5, 0), Ranked(5, 0)};
  node.processes[0].is_alive = false;
  DropSharedNumbers(node);
  for (const ProcessSnapshot& process : node.processes) EXPECT_TRUE(IsKnown(process));
}

// A number that the process had before, and another one has now.
TEST(SharedNumbers, OfAProcessAreThoseOfItsLatestCommunicator) {
  NodeSnapshot node;
  node.processes = {Ranked(3, 0), Ranked(5, 1)};
  node.processes[0].communicators.emplace_back().numbers.global_rank = 5;
  DropSharedNumbers(node);
  EXPECT_TRUE(IsKnown(node.processes[0]));
  EXPECT_TRUE(IsKnown(node.processes[1]));
}

}  // namespace
}  // namespace nccl_exporter::collector
