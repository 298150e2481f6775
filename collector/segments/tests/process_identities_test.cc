// SPDX-License-Identifier: Apache-2.0
#include "collector/segments/process_identities.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace nccl_exporter::collector {
namespace {

uint64_t inodes = 0;

ProcessSnapshot Ranked(uint32_t global_rank, uint32_t local_rank, const std::string& job = "7") {
  ProcessSnapshot process;
  process.is_alive = true;
  process.identity = {{"SLURM_JOB_ID", job}};
  process.numbers = {.global_rank = global_rank, .local_rank = local_rank, .world_size = 8};
  process.communicators.emplace_back().numbers = process.numbers;
  process.file.inode = ++inodes;
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
  ProvenIdentities proven;
  node.processes = {Ranked(5, 0), Ranked(5, 0), Ranked(5, 1), Ranked(6, 2)};
  SettleIdentities(node, proven);
  for (const size_t i : {0u, 1u, 2u}) EXPECT_FALSE(IsKnown(node.processes[i])) << i;
  EXPECT_TRUE(IsKnown(node.processes[3]));
  EXPECT_FALSE(node.processes[0].numbers.local_rank);
  EXPECT_EQ(node.processes[2].numbers.local_rank, 1u) << "a number of its own on the node";
}

TEST(SharedNumbers, AreNotThoseOfOtherJobsUsersAndNamespaces) {
  NodeSnapshot node;
  ProvenIdentities proven;
  node.processes = {Ranked(5, 0), Ranked(5, 0, "8"), Ranked(5, 0), Ranked(5, 0)};
  node.processes[2].uid = 1;
  node.processes[3].identity.emplace_back("POD_NAMESPACE", "team-a");
  SettleIdentities(node, proven);
  for (const ProcessSnapshot& process : node.processes) EXPECT_TRUE(IsKnown(process));
}

// A job that restarts has the same numbers, and its dead processes keep theirs.
TEST(SharedNumbers, AreNotThoseOfTheDead) {
  NodeSnapshot node;
  ProvenIdentities proven;
  node.processes = {Ranked(5, 0), Ranked(5, 0)};
  node.processes[0].is_alive = false;
  SettleIdentities(node, proven);
  for (const ProcessSnapshot& process : node.processes) EXPECT_TRUE(IsKnown(process));
}

// A number that the process had before, and another one has now.
TEST(SharedNumbers, OfAProcessAreThoseOfItsLatestCommunicator) {
  NodeSnapshot node;
  ProvenIdentities proven;
  node.processes = {Ranked(3, 0), Ranked(5, 1)};
  node.processes[0].communicators.emplace_back().numbers.global_rank = 5;
  SettleIdentities(node, proven);
  EXPECT_TRUE(IsKnown(node.processes[0]));
  EXPECT_TRUE(IsKnown(node.processes[1]));
}

// A process that has made the communicator `first`, then `others`, as rank `rank` of each.
ProcessSnapshot Unnamed(uint64_t first, uint64_t rank, const std::vector<uint64_t>& others = {}) {
  ProcessSnapshot process;
  process.is_alive = true;
  process.file.inode = ++inodes;
  process.first_communicator = first;
  for (const uint64_t id : others) {
    CommunicatorSnapshot& communicator = process.communicators.emplace_back();
    communicator.has_identity = true;
    communicator.id = id;
    communicator.ranks = 4;
    communicator.rank = rank;
  }
  return process;
}

std::string JobsOf(std::vector<ProcessSnapshot> processes, ProvenIdentities& proven) {
  NodeSnapshot node;
  node.processes = std::move(processes);
  SettleIdentities(node, proven);
  std::string jobs;
  for (const ProcessSnapshot& process : node.processes) {
    const std::string name = process.JobName();
    jobs += (jobs.empty() ? "" : " ") + (name.size() == 16 ? name.substr(14)
                                         : name.empty()    ? "-"
                                                           : name);
  }
  return jobs;
}
std::string JobsOf(std::vector<ProcessSnapshot> processes) {
  ProvenIdentities proven;
  return JobsOf(std::move(processes), proven);
}

// Regresses: a rank that was replaced was a job of its own, and its communicator lacked a rank.
TEST(JobOfAProcess, IsThatOfTheOldestWithWhichItSharesACommunicator) {
  EXPECT_EQ(JobsOf({Unnamed(0xa0, 0, {0xb0}), Unnamed(0xa0, 1, {0xb0}), Unnamed(0xa0, 3, {0xb0}),
                    Unnamed(0xb0, 2, {0xb0})}),
            "a0 a0 a0 a0");
}

// Two pairs of tensor parallelism, of which only one rank each is in a communicator of both.
TEST(JobOfAProcess, IsThatOfAllWhoseFirstCommunicatorIsTheSame) {
  EXPECT_EQ(JobsOf({Unnamed(0xa1, 0, {0xa1, 0xd0}), Unnamed(0xa2, 0), Unnamed(0xa1, 1),
                    Unnamed(0xa2, 1, {0xa2, 0xd0}), Unnamed(0xa3, 0)}),
            "a1 a1 a1 a1 a3");
  EXPECT_EQ(JobsOf({Unnamed(0xa1, 0, {0xd0}), Unnamed(0xa2, 1, {0xd1}), Unnamed(0xa3, 2, {0xd2}),
                    Unnamed(0xa4, 3, {0xd2, 0xd1, 0xd0})}),
            "a1 a1 a1 a1");
}

TEST(JobOfAProcess, IsNotThatOfACommunicatorOfTheSameIdOnly) {
  EXPECT_EQ(JobsOf({Unnamed(0xa1, 0, {0xd0}), Unnamed(0xa2, 0, {0xd0})}), "a1 a2") << "same rank";
  ProcessSnapshot other_user = Unnamed(0xa2, 1, {0xd0}), other_namespace = other_user,
                  other_size = other_user, closed = other_user, named = other_user;
  other_user.uid = 7;
  other_namespace.identity = {{"POD_NAMESPACE", "team-a"}};
  other_size.communicators[0].ranks = 2;
  closed.communicators[0].is_closed = true;
  named.identity = {{"TORCHELASTIC_RUN_ID", "run"}};
  for (const ProcessSnapshot& other : {other_user, other_namespace, other_size, closed})
    EXPECT_EQ(JobsOf({Unnamed(0xa1, 0, {0xd0}), other}), "a1 a2");
  EXPECT_EQ(JobsOf({Unnamed(0xa1, 0, {0xd0}), named}), "a1 run");
  EXPECT_EQ(JobsOf({Unnamed(0, 0, {0xd0}), Unnamed(0xd0, 1, {0xd0})}), "- d0") << "before 1.7";
}

TEST(JobOfAProcess, StaysWhenTheOldestAndTheCommunicatorHaveGone) {
  ProvenIdentities proven;
  const ProcessSnapshot oldest = Unnamed(0xa1, 0, {0xd0});
  ProcessSnapshot other = Unnamed(0xa2, 1, {0xd0});
  EXPECT_EQ(JobsOf({oldest, other}, proven), "a1 a1");
  other.communicators.clear();
  EXPECT_EQ(JobsOf({other}, proven), "a1");
  EXPECT_EQ(JobsOf({other, Unnamed(0xa2, 0)}, proven), "a1 a2") << "of another job of that id";
}

// Regresses: when three of four processes of a task ended, all had its number again.
TEST(SharedNumbers, StayAwayWhenTheOthersEnd) {
  ProvenIdentities proven;
  NodeSnapshot node;
  node.processes = {Ranked(1, 0), Ranked(1, 1), Ranked(1, 2), Ranked(2, 3)};
  const NodeSnapshot all = node;
  SettleIdentities(node, proven);
  node = all;
  for (const size_t i : {1u, 2u}) node.processes[i].is_alive = false;
  SettleIdentities(node, proven);
  for (const size_t i : {0u, 1u, 2u}) EXPECT_FALSE(IsKnown(node.processes[i])) << i;
  EXPECT_EQ(node.processes[0].numbers.local_rank, 0u);
  node.processes = {all.processes[0], Ranked(1, 0)};
  node.processes[0].numbers.global_rank = node.processes[0].communicators[0].numbers.global_rank =
      3;
  node.processes[1].is_alive = false;
  SettleIdentities(node, proven);
  EXPECT_FALSE(IsKnown(node.processes[0])) << "another number by the same launcher";
  EXPECT_TRUE(IsKnown(node.processes[1]));
}

// Before their first communicator of more than one rank, two jobs may have a number each.
TEST(SharedNumbers, OfProcessesWithoutAJobComeBackWithIt) {
  ProvenIdentities proven;
  NodeSnapshot node;
  node.processes = {Ranked(0, 0, ""), Ranked(0, 0, "")};
  NodeSnapshot later = node;
  SettleIdentities(node, proven);
  for (const ProcessSnapshot& process : node.processes) EXPECT_FALSE(IsKnown(process));
  for (const size_t i : {0u, 1u}) later.processes[i].first_communicator = 0xa0 + i;
  SettleIdentities(later, proven);
  for (const ProcessSnapshot& process : later.processes) EXPECT_TRUE(IsKnown(process));
}

// Regresses: two ranks in one process, whose GPUs are not known, had the number of the process.
TEST(RankNumbers, AreNoneWhereAProcessHasTwoRanksOfACommunicator) {
  ProvenIdentities proven;
  NodeSnapshot node;
  const auto member = [](uint64_t rank) {
    CommunicatorSnapshot communicator = Unnamed(0xe0, rank, {0xe0}).communicators[0];
    communicator.numbers = {.global_rank = 0, .local_rank = 0, .world_size = 4};
    return communicator;
  };
  for (const auto& ranks : std::vector<std::vector<uint64_t>>{{0, 3}, {1}, {2, 2}}) {
    ProcessSnapshot& process =
        node.processes.emplace_back(Ranked(static_cast<uint32_t>(node.processes.size()), 0));
    process.first_communicator = 0xe0;
    process.communicators.clear();
    for (const uint64_t rank : ranks) process.communicators.push_back(member(rank));
  }
  const NodeSnapshot before = node;
  SettleIdentities(node, proven);
  EXPECT_FALSE(IsKnown(node.processes[0]));
  EXPECT_FALSE(node.processes[0].numbers.local_rank);
  EXPECT_TRUE(IsKnown(node.processes[1]));
  EXPECT_TRUE(IsKnown(node.processes[2])) << "one rank, of communicators of one id";
  node = before;
  node.processes[0].communicators.pop_back();
  SettleIdentities(node, proven);
  EXPECT_FALSE(IsKnown(node.processes[0])) << "the other rank has finalized it";
}

ProcessSnapshot InContainer(const std::string& host_name, uint64_t pid,
                            const std::string& job = "7") {
  ProcessSnapshot process = Unnamed(0, 0);
  process.host_name = host_name;
  process.pid = pid;
  process.identity = {{"SLURM_JOB_ID", job}};
  return process;
}

std::string PodsOf(std::vector<ProcessSnapshot> processes, ProvenIdentities& proven) {
  NodeSnapshot node;
  node.processes = std::move(processes);
  SettleIdentities(node, proven);
  std::string pods;
  for (const ProcessSnapshot& process : node.processes)
    pods += (pods.empty() ? "" : " ") +
            (process.Identity("POD_NAME").empty() ? "-" : process.Identity("POD_NAME"));
  return pods;
}
std::string PodsOf(std::vector<ProcessSnapshot> processes) {
  ProvenIdentities proven;
  return PodsOf(std::move(processes), proven);
}

// Regresses: equal entry points have equal pids, so two containers of a job had one series, and
// while one of them was stopped the other was halted.
TEST(EqualPids, OfAJobHaveTheHostNameOfTheirContainer) {
  EXPECT_EQ(PodsOf({InContainer("a", 1), InContainer("b", 1), InContainer("c", 2)}), "a b -");
  ProcessSnapshot ended = InContainer("a", 1);
  ended.is_alive = false;
  EXPECT_EQ(PodsOf({ended, InContainer("b", 1)}), "a b");
  ProcessSnapshot named = InContainer("a", 1);
  named.identity.emplace_back("POD_NAME", "trainer-0");
  EXPECT_EQ(PodsOf({named, InContainer("b", 1)}), "trainer-0 -");
}

TEST(EqualPids, OfOneContainerAndOfOtherJobsAndUsersAreLeftAsTheyAre) {
  ProcessSnapshot other_user = InContainer("b", 1), other_namespace = other_user;
  other_user.uid = 7;
  other_namespace.identity.emplace_back("POD_NAMESPACE", "team-a");
  for (const ProcessSnapshot& other :
       {InContainer("a", 1), InContainer("b", 1, "8"), other_user, other_namespace})
    EXPECT_EQ(PodsOf({InContainer("a", 1), other}), "- -");
}

TEST(EqualPids, KeepTheHostNameWhenTheOtherHasGone) {
  ProvenIdentities proven;
  const ProcessSnapshot one = InContainer("a", 1);
  EXPECT_EQ(PodsOf({one, InContainer("b", 1)}, proven), "a b");
  EXPECT_EQ(PodsOf({one}, proven), "a");
  const ProcessSnapshot unnamed = InContainer("c", 1, "");
  EXPECT_EQ(PodsOf({unnamed, InContainer("d", 1, "")}, proven), "c d");
  EXPECT_EQ(PodsOf({unnamed}, proven), "-") << "its job was not known";
}

}  // namespace
}  // namespace nccl_exporter::collector
