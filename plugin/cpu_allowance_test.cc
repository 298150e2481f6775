// SPDX-License-Identifier: Apache-2.0
#include "plugin/cpu_allowance.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

namespace nccl_exporter {
namespace {

// A file system of a node's own.
class CpuAllowanceTest : public testing::Test {
 protected:
  CpuAllowanceTest() {
    std::string pattern = testing::TempDir() + "cpusXXXXXX";
    root_ = mkdtemp(pattern.data());
    Write("/sys/devices/system/cpu/online", "0-127\n");
  }
  ~CpuAllowanceTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  CpuAllowance Read() const { return ReadCpuAllowance(root_.c_str()); }

  std::string root_;
};

TEST_F(CpuAllowanceTest, IsTheWholeNodeWithoutCgroups) {
  EXPECT_EQ(Read().shared, 128u);
  EXPECT_EQ(Read().quota_milli, 0u);
}

TEST_F(CpuAllowanceTest, TakesTheLeastQuotaOfAllLevelsAndTheNearestCpuset) {
  Write("/proc/self/cgroup", "0::/kubepods/pod1/worker\n");
  Write("/sys/fs/cgroup/cpuset.cpus.effective", "0-127\n");
  Write("/sys/fs/cgroup/kubepods/cpu.max", "6400000 100000\n");
  Write("/sys/fs/cgroup/kubepods/pod1/cpu.max", "150000 100000\n");
  Write("/sys/fs/cgroup/kubepods/pod1/cpuset.cpus.effective", "0-3,8,10-11\n");
  Write("/sys/fs/cgroup/kubepods/pod1/worker/cpu.max", "max 100000\n");
  EXPECT_EQ(Read().quota_milli, 1500u);
  EXPECT_EQ(Read().shared, 7u);
}

TEST_F(CpuAllowanceTest, FindsTheFilesOfAContainerWhosePathIsTheHosts) {
  Write("/proc/self/cgroup", "0::/../../host/slice\n");
  Write("/sys/fs/cgroup/cpu.max", "400000 100000\n");
  Write("/sys/fs/cgroup/cpuset.cpus.effective", "16-31\n");
  EXPECT_EQ(Read().quota_milli, 4000u);
  EXPECT_EQ(Read().shared, 16u);
}

TEST_F(CpuAllowanceTest, KnowsCgroupV1) {
  Write("/proc/self/cgroup", "11:cpuset:/slurm/job_1\n4:cpu,cpuacct:/slurm/job_1\n1:name=systemd:/\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu/slurm/job_1/cpu.cfs_quota_us", "800000\n");
  Write("/sys/fs/cgroup/cpu/slurm/job_1/cpu.cfs_period_us", "100000\n");
  Write("/sys/fs/cgroup/cpuset/slurm/job_1/cpuset.cpus", "32-63\n");
  EXPECT_EQ(Read().quota_milli, 8000u);
  EXPECT_EQ(Read().shared, 32u);
}

TEST_F(CpuAllowanceTest, TakesNonsenseForNoLimit) {
  Write("/proc/self/cgroup", "0:/no-path\nnonsense\n0::\n0::/a\n");
  Write("/sys/fs/cgroup/a/cpu.max", "lots 100000\n");
  Write("/sys/fs/cgroup/a/cpuset.cpus.effective", "5-2\n");
  EXPECT_EQ(Read().quota_milli, 0u);
  EXPECT_EQ(Read().shared, 128u);
}

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
  EXPECT_EQ(MilliCpusPerRank({.affinity = 128, .shared = 128, .quota_milli = 0}, {.on_node = 8}), 16'000u);
  EXPECT_EQ(MilliCpusPerRank({.affinity = 2, .shared = 2, .quota_milli = 0}, {.on_node = 2}), 1000u);
  EXPECT_EQ(MilliCpusPerRank({.affinity = 128, .shared = 128, .quota_milli = 12'000}, {.on_node = 8}), 1500u);
}

TEST(MilliCpusPerRank, DoesNotShareTheAffinityOfARankThatIsBound) {
  EXPECT_EQ(MilliCpusPerRank({.affinity = 14, .shared = 112, .quota_milli = 0}, {.on_node = 8}), 14'000u);
  EXPECT_EQ(MilliCpusPerRank({.affinity = 1, .shared = 112, .quota_milli = 0}, {.on_node = 8}), 1000u);
}

TEST(MilliCpusPerRank, SharesTheAffinityAmongTheRanksOfTheProcess) {
  EXPECT_EQ(MilliCpusPerRank({.affinity = 8, .shared = 112}, {.on_node = 8, .in_process = 8}), 1000u);
}

TEST(MilliCpusPerRank, IsUnlimitedWhereNothingIsKnown) {
  EXPECT_EQ(MilliCpusPerRank({}, {.on_node = 8}), std::numeric_limits<uint32_t>::max());
  EXPECT_EQ(MilliCpusPerRank({.affinity = 4, .shared = 0, .quota_milli = 0}, {.on_node = 8}), 4000u);
}

}  // namespace
}  // namespace nccl_exporter
