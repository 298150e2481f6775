// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "plugin/identity/identity.h"

namespace nccl_exporter::plugin {
namespace {

// Files of cgroups as the kernel shows them, and the quota that follows.
struct NodeFiles {
  const char* name;
  std::vector<std::pair<std::string, std::string>> files;
  uint32_t quota_milli;
};

class CpuAllowanceOf : public testing::TestWithParam<NodeFiles> {};

TEST_P(CpuAllowanceOf, IsWhatTheFilesSay) {
  std::string root = testing::TempDir() + "cpusXXXXXX";
  ASSERT_NE(mkdtemp(root.data()), nullptr);
  for (const auto& [path, text] : GetParam().files) {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << text;
  }
  const CpuAllowance allowance = ReadCpuAllowance(root.c_str());
  std::filesystem::remove_all(root);
  EXPECT_EQ(allowance.quota_milli, GetParam().quota_milli);
}

INSTANTIATE_TEST_SUITE_P(
    Nodes, CpuAllowanceOf,
    testing::Values(NodeFiles{.name = "NoCgroups", .files = {}, .quota_milli = 0},
                    NodeFiles{.name = "TheProcesssOwn",
                              .files = {{"/proc/self/cgroup", "0::/kubepods/pod1\n"},
                                        {"/sys/fs/cgroup/kubepods/pod1/cpu.max", "150000 100000\n"},
                                        {"/sys/fs/cgroup/cpu.max", "max 100000\n"}},
                              .quota_milli = 1500},
                    NodeFiles{.name = "AContainerWhosePathIsTheHosts",
                              .files = {{"/proc/self/cgroup", "0::/../../host/slice\n"},
                                        {"/sys/fs/cgroup/cpu.max", "400000 100000\n"}},
                              .quota_milli = 4000},
                    NodeFiles{.name = "WithoutALimit",
                              .files = {{"/proc/self/cgroup", "0::/\n"},
                                        {"/sys/fs/cgroup/cpu.max", "max 100000\n"}},
                              .quota_milli = 0},
                    NodeFiles{.name = "CgroupV1",
                              .files = {{"/proc/self/cgroup", "4:cpu,cpuacct:/slurm/job_1\n"},
                                        {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "800000\n"},
                                        {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}},
                              .quota_milli = 8000},
                    NodeFiles{.name = "NonsenseThatIsNoLimit",
                              .files = {{"/proc/self/cgroup", "0:/no-path\nnonsense\n0::\n0::/a\n"},
                                        {"/sys/fs/cgroup/a/cpu.max", "lots 100000\n"}},
                              .quota_milli = 0}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(CpuAllowance, CountsTheAffinityOfTheCallingThread) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(ReadCpuAllowance().affinity, 1u);
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
  EXPECT_EQ(ReadCpuAllowance().affinity, static_cast<uint32_t>(CPU_COUNT(&before)));
}

TEST(MilliCpusPerRank, SharesTheNodeAmongItsRanks) {
  EXPECT_EQ(MilliCpusPerRank({.affinity = 128, .online = 128, .quota_milli = 0}, {.on_node = 8}),
            16'000u);
  EXPECT_EQ(MilliCpusPerRank({.affinity = 2, .online = 2, .quota_milli = 0}, {.on_node = 2}),
            1000u);
  EXPECT_EQ(
      MilliCpusPerRank({.affinity = 128, .online = 128, .quota_milli = 12'000}, {.on_node = 8}),
      1500u);
}

TEST(MilliCpusPerRank, DoesNotShareTheAffinityOfARankThatIsBound) {
  EXPECT_EQ(MilliCpusPerRank({.affinity = 14, .online = 112, .quota_milli = 0}, {.on_node = 8}),
            14'000u);
  EXPECT_EQ(MilliCpusPerRank({.affinity = 1, .online = 112, .quota_milli = 0}, {.on_node = 8}),
            1000u);
}

TEST(MilliCpusPerRank, SharesTheAffinityAmongTheRanksOfTheProcess) {
  EXPECT_EQ(MilliCpusPerRank({.affinity = 8, .online = 112}, {.on_node = 8, .in_process = 8}),
            1000u);
}

TEST(MilliCpusPerRank, IsUnlimitedWhereNothingIsKnown) {
  EXPECT_EQ(MilliCpusPerRank({}, {.on_node = 8}), std::numeric_limits<uint32_t>::max());
  EXPECT_EQ(MilliCpusPerRank({.affinity = 4, .online = 0, .quota_milli = 0}, {.on_node = 8}),
            4000u);
}

}  // namespace
}  // namespace nccl_exporter::plugin
