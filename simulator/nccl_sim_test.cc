// SPDX-License-Identifier: Apache-2.0
// The program as people start it: its processes, its files, its exit codes.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "simulator/loader/nccl_library.h"
#include "simulator/release/profiler_event.h"

namespace nccl_exporter::sim {
namespace {

class NcclSimTest : public testing::Test {
 protected:
  NcclSimTest() {
    std::string name = testing::TempDir() + "nccl_sim_test_XXXXXX";
    directory_ = mkdtemp(name.data());
  }
  ~NcclSimTest() override { std::filesystem::remove_all(directory_); }

  pid_t Start(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {SiblingPath("nccl-sim").string(), "--plugin", plugin_,
                                         "--truth", TruthFile()});
    const pid_t pid = fork();
    if (pid != 0) return pid;
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    if (freopen(File("out").c_str(), "w", stdout) == nullptr) _exit(127);
    execv(argv[0], argv.data());
    _exit(127);
  }

  static int WaitFor(pid_t pid) {
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  int Run(const std::vector<std::string>& arguments) const { return WaitFor(Start(arguments)); }

  std::string File(const std::string& name) const { return directory_ + "/" + name; }
  std::string TruthFile() const { return File("truth.json"); }
  nlohmann::json Truth() const { return nlohmann::json::parse(std::ifstream(TruthFile())); }
  std::string Output() const {
    std::stringstream text;
    text << std::ifstream(File("out")).rdbuf();
    return text.str();
  }

  std::string directory_;
  std::string plugin_ = SiblingPath("librecording-plugin.so");
};

TEST_F(NcclSimTest, PlaysEveryRankAndWritesTheGroundTruthOfAll) {
  ASSERT_EQ(Run({"--nodes", "2", "--ranks-per-node", "2", "--steps", "2"}), 0);
  const nlohmann::json truth = Truth();
  EXPECT_EQ(truth["api_version"], 6);
  EXPECT_EQ(truth["nccl_version"], 23007);
  ASSERT_EQ(truth["ranks"].size(), 4u);
  EXPECT_EQ(truth["ranks"][3]["rank"], 3);
  EXPECT_EQ(truth["ranks"][3]["local_rank"], 1);
  EXPECT_EQ(truth["ranks"][3]["node"], 1);
  EXPECT_EQ(truth["ranks"][0]["communicators"][0]["id"],
            truth["ranks"][3]["communicators"][0]["id"]);
  EXPECT_NE(truth["ranks"][0]["gpu_uuid"], truth["ranks"][2]["gpu_uuid"]);
  EXPECT_EQ(truth["ranks"][0]["gpu_uuid"].get<std::string>().size(), 40u);
  EXPECT_NE(Output().find("NCCL 23007, profiler API v6, layout dp, 2 steps"), std::string::npos);
}

TEST_F(NcclSimTest, PlaysOneNodeOnly) {
  ASSERT_EQ(Run({"--nodes", "2", "--ranks-per-node", "2", "--steps", "1", "--node", "1"}), 0);
  ASSERT_EQ(Truth()["ranks"].size(), 2u);
  EXPECT_EQ(Truth()["ranks"][0]["rank"], 2);
}

TEST_F(NcclSimTest, RunsOnWithoutAPlugin) {
  plugin_ = "/nonexistent.so";
  EXPECT_EQ(Run({"--steps", "1", "--nccl-debug", "none", "--ranks-per-node", "1"}), 0);
  EXPECT_TRUE(Truth()["ranks"][0]["communicators"][0]["functions"].empty());
}

TEST_F(NcclSimTest, AccountsForAKilledRank) {
  ASSERT_EQ(Run({"--ranks-per-node", "2", "--steps", "4", "--layout", "single", "--kill-rank", "1",
                 "--kill-step", "3"}),
            0);
  const nlohmann::json truth = Truth();
  EXPECT_EQ(truth["ranks"][0]["killed"], false);
  EXPECT_EQ(truth["ranks"][1]["killed"], true);
}

TEST_F(NcclSimTest, EndsThoughARankHangs) {
  ASSERT_EQ(
      Run({"--ranks-per-node", "2", "--steps", "4", "--incident", "missing-call:rank=1,from=0.1"}),
      0);
  nlohmann::json truth = Truth();
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(truth["ranks"][rank]["communicators"].size(), 1u);
    EXPECT_EQ(truth["ranks"][rank]["killed"], false);
  }
}

TEST_F(NcclSimTest, KillsTheProcessOfAnIncident) {
  ASSERT_EQ(Run({"--ranks-per-node", "2", "--steps", "4", "--incident", "kill:rank=1,from=0.1"}),
            0);
  EXPECT_EQ(Truth()["ranks"][0]["killed"], false);
  EXPECT_EQ(Truth()["ranks"][1]["killed"], true);
}

TEST_F(NcclSimTest, StopsAProcessUntilTheJobEnds) {
  ASSERT_EQ(Run({"--ranks-per-node", "2", "--steps", "20", "--rate", "20", "--pace", "real",
                 "--incident", "stop:rank=1,from=0.1"}),
            0);
  EXPECT_EQ(Truth()["ranks"].size(), 2u);
}

TEST_F(NcclSimTest, TellsAllAfterASignal) {
  const pid_t pid = Start({"--ranks-per-node", "2", "--pace", "real", "--duration", "600"});
  while (Output().empty()) usleep(1000);
  kill(pid, SIGTERM);
  EXPECT_EQ(WaitFor(pid), 0);
  EXPECT_EQ(Truth()["ranks"].size(), 2u);
}

TEST_F(NcclSimTest, EndsWithACodeOfItsOwnWhereADestroyHangs) {
  constexpr uint32_t kTimedMask = kColl | kP2p | kKernelCh;
  const std::vector<std::string> job{"--ranks-per-node",
                                     "2",
                                     "--nccl-version",
                                     "23007",
                                     "--channels",
                                     "8",
                                     "--steps",
                                     "60",
                                     "--rate",
                                     "1000",
                                     "--calls",
                                     "allgatherv,allreduce",
                                     "--env",
                                     "RECORDING_MASK=" + std::to_string(kTimedMask)};
  EXPECT_EQ(Run(job), 3);
  ASSERT_EQ(Truth()["ranks"].size(), 2u);
  for (const nlohmann::json& rank : Truth()["ranks"]) {
    EXPECT_TRUE(rank["communicators"][0]["destroy_hang"].is_object()) << rank;
  }
}

TEST_F(NcclSimTest, RefusesBadOptions) { EXPECT_EQ(Run({"--steps", "many"}), 2); }

}  // namespace
}  // namespace nccl_exporter::sim
