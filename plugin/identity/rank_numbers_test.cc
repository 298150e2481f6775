// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "plugin/identity/identity.h"

namespace nccl_exporter::plugin {
namespace {

std::map<std::string, std::string> environment;
const char* Get(const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? nullptr : found->second.c_str();
}

RankNumbers NumbersIn(std::map<std::string, std::string> variables) {
  environment = std::move(variables);
  return FindRankNumbers(Get);
}
bool HasMoreIn(std::map<std::string, std::string> variables, int ranks, int nodes) {
  environment = std::move(variables);
  return HasMoreRanksThanProcesses(Get, ranks, nodes);
}

TEST(RankNumbers, AreThoseOfTheLauncher) {
  const RankNumbers torchrun = NumbersIn({{"RANK", "5"},
                                          {"WORLD_SIZE", "8"},
                                          {"LOCAL_RANK", "1"},
                                          {"LOCAL_WORLD_SIZE", "4"},
                                          {"SLURM_PROCID", "2"},
                                          {"SLURM_STEP_NUM_TASKS", "4"}});
  EXPECT_EQ(torchrun.global_rank, 5);
  EXPECT_EQ(torchrun.local_rank, 1);
  EXPECT_EQ(torchrun.world_size, 8);
  const RankNumbers slurm =
      NumbersIn({{"SLURM_PROCID", "15"}, {"SLURM_LOCALID", "7"}, {"SLURM_STEP_NUM_TASKS", "16"}});
  EXPECT_EQ(slurm.global_rank, 15);
  EXPECT_EQ(slurm.local_rank, 7);
  EXPECT_EQ(slurm.world_size, 16);
}

// Regresses: any text in RANK was a rank, and so was Slurm's number of a process that srun has not
// started.
TEST(RankNumbers, AreNoneWithoutAProof) {
  for (const char* rank : {" 3", "3.0", "abc", "+3", "-1", "0x3", "3 ", "8", "99999999999", ""}) {
    const RankNumbers numbers = NumbersIn({{"RANK", rank}, {"WORLD_SIZE", "8"}});
    EXPECT_EQ(numbers.global_rank, -1) << rank;
    EXPECT_EQ(numbers.world_size, 0) << rank;
  }
  EXPECT_EQ(NumbersIn({{"RANK", "3"}}).global_rank, -1) << "a size is missing";
  EXPECT_EQ(NumbersIn({{"RANK", "3"}, {"WORLD_SIZE", "many"}}).global_rank, -1);
  EXPECT_EQ(NumbersIn({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}).global_rank, -1)
      << "a batch script has no step of ranks";
  EXPECT_EQ(NumbersIn({{"SLURM_PROCID", "4"}, {"SLURM_STEP_NUM_TASKS", "4"}}).global_rank, -1);
  EXPECT_EQ(
      NumbersIn({{"RANK", "x"}, {"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "4"}}).global_rank,
      -1)
      << "two launchers that contradict each other";
  const RankNumbers local = NumbersIn(
      {{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "4"}, {"LOCAL_WORLD_SIZE", "4"}});
  EXPECT_EQ(local.global_rank, 3);
  EXPECT_EQ(local.local_rank, -1);
}

TEST(RankNumbers, NumberProcessesWhereACommunicatorHasMoreRanks) {
  EXPECT_TRUE(HasMoreIn({{"RANK", "0"}, {"WORLD_SIZE", "2"}}, 3, 2));
  EXPECT_FALSE(HasMoreIn({{"RANK", "0"}, {"WORLD_SIZE", "2"}}, 2, 1));
  EXPECT_TRUE(HasMoreIn({{"RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}}, 3, 1));
  EXPECT_FALSE(HasMoreIn({{"RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}}, 3, 2))
      << "two here, one elsewhere";
  EXPECT_FALSE(HasMoreIn({{"RANK", "0"}, {"WORLD_SIZE", "2"}}, 0, 0)) << "ranks not known";
  const std::map<std::string, std::string> step{{"SLURM_STEP_NUM_TASKS", "4"}, {"WORLD_SIZE", "1"}};
  EXPECT_TRUE(HasMoreIn(step, 5, 2));
  EXPECT_FALSE(HasMoreIn(step, 4, 1)) << "WORLD_SIZE goes with RANK";
  EXPECT_FALSE(HasMoreIn({}, 8, 1));
  EXPECT_FALSE(HasMoreIn({{"SLURM_STEP_NUM_TASKS", "many"}}, 8, 1));
}

// Regresses: one task per node starts the processes of its node, and all of them had its number.
TEST(RankNumbers, NumberTasksThatStartSeveralProcessesEach) {
  const auto step = [](const char* tasks_per_node, const char* node) {
    return std::map<std::string, std::string>{{"SLURM_PROCID", "5"},
                                              {"SLURM_STEP_NUM_TASKS", "16"},
                                              {"SLURM_STEP_TASKS_PER_NODE", tasks_per_node},
                                              {"SLURM_NODEID", node}};
  };
  EXPECT_TRUE(HasMoreIn(step("1(x16)", "5"), 4, 1));
  EXPECT_TRUE(HasMoreIn(step("1(x16)", "5"), 16, 4)) << "four on each node";
  EXPECT_FALSE(HasMoreIn(step("1(x16)", "5"), 16, 16)) << "one on each node: nothing says so";
  EXPECT_FALSE(HasMoreIn(step("4(x4)", "1"), 4, 1));
  EXPECT_FALSE(HasMoreIn(step("4(x4)", "1"), 16, 4));
  EXPECT_TRUE(HasMoreIn(step("8,4(x2)", "1"), 8, 1));
  EXPECT_FALSE(HasMoreIn(step("8,4(x2)", "0"), 8, 1));
  EXPECT_FALSE(HasMoreIn(step("8,4(x2)", "7"), 8, 1)) << "a node that is not in the list";
  for (const char* list : {"", "x", "4(x", "4(x2", "4,", "(x4)", "0(x4)", "4(y2)"})
    EXPECT_FALSE(HasMoreIn(step(list, "1"), 8, 1)) << list;
}

}  // namespace
}  // namespace nccl_exporter::plugin
