// SPDX-License-Identifier: Apache-2.0
#include "collector/host/proc_text.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "collector/testing/scratch_directory.h"

namespace nccl_exporter::collector {
namespace {

class ProcTextTest : public testing::Test {
 protected:
  void Write(const std::string& file, const std::string& text) {
    const std::filesystem::path path = mount_.File(file);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  ScratchDirectory mount_;
};

TEST_F(ProcTextTest, ThrottlingIsOfTheInnermostCgroupWithAQuota) {
  Write("pods/pod1/cpu.max", "400000 100000\n");
  Write("pods/pod1/main/cpu.max", "max 100000\n");
  EXPECT_EQ(ThrottlingFile(mount_.path(), "/pods/pod1/main"), mount_.File("pods/pod1/cpu.stat"));
  EXPECT_EQ(ThrottlingFile(mount_.path(), "/pods"), "");
  EXPECT_EQ(ThrottlingFile(mount_.path(), ""), "");
}

TEST_F(ProcTextTest, ThrottlingIsFoundByVersionOne) {
  Write("slurm/job_7/cpu.cfs_quota_us", "-1\n");
  Write("slurm/cpu.cfs_quota_us", "200000\n");
  EXPECT_EQ(ThrottlingFile(mount_.path(), "/slurm/job_7"), mount_.File("slurm/cpu.stat"));
}

TEST_F(ProcTextTest, NamesAreInOrderAndLimited) {
  EXPECT_TRUE(NamesIn(mount_.File("missing")).empty());
  for (size_t i = 0; i < kMostNames + 10; ++i) Write("fd/" + std::to_string(i), "");
  EXPECT_EQ(NamesIn(mount_.File("fd")).size(), kMostNames);
  Write("few/b", "");
  Write("few/a", "");
  EXPECT_EQ(NamesIn(mount_.File("few")), (std::vector<std::string>{"a", "b"}));
}

TEST(ProcTexts, HaveTheCgroupOfEachController) {
  const std::string membership = "5:memory:/m\n4:cpu,cpuacct:/slurm/job:7\n1:cpuset:/\n0::/user\n";
  EXPECT_EQ(CgroupOf(membership, "cpu"), "/slurm/job:7");
  EXPECT_EQ(CgroupOf(membership, ""), "/user");
  EXPECT_EQ(CgroupOf(membership, "cpuset"), "");
  EXPECT_EQ(CgroupOf(membership, "pids"), std::nullopt);
}

TEST(ProcTexts, HaveNoCgroupOutsideTheNamespace) {
  for (const char* text : {"0::/../other\n", "0::/a/../..\n", "", "\n", "0", "0::", ":", "0::x\n"})
    EXPECT_EQ(CgroupOf(text, ""), std::nullopt) << text;
}

TEST(ProcTexts, HaveTheTimeByBothVersions) {
  EXPECT_EQ(ThrottledNs("usage_usec 9\nnr_throttled 4\nthrottled_usec 1500\n"), 1500000u);
  EXPECT_EQ(ThrottledNs("nr_periods 9\nnr_throttled 4\nthrottled_time 1500\n"), 1500u);
  EXPECT_EQ(ThrottledNs("usage_usec 9\n"), std::nullopt);
}

TEST(ProcTexts, HaveNumbersBehindNames) {
  EXPECT_EQ(NumberBehind("some avg10=0.00 total=2500\nfull total=7\n", " total="), 2500u);
  EXPECT_EQ(NumberBehind("switches:\t 12\n", "switches:"), 12u);
  for (const char* text : {"", "total", "total=", "total= ", "total=x"})
    EXPECT_EQ(NumberBehind(text, "total="), std::nullopt) << text;
}

TEST(ProcTexts, HaveMajorFaultsBehindAnyName) {
  EXPECT_EQ(MajorFaults("7 (a) b) S 1 2 3 4 5 6 7 8 70 10 11\n"), 70u);
  for (const char* text : {"", "7 (a", "7 (a) S 1 2 3", "7 (a) S 1 2 3 4 5 6 7 8 x"})
    EXPECT_EQ(MajorFaults(text), std::nullopt) << text;
}

}  // namespace
}  // namespace nccl_exporter::collector
