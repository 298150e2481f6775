// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/doctor/gpu_processes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <future>

#include "collector/testing/scratch_directory.h"

namespace nccl_exporter::exporter {
namespace {

constexpr const char* kSegment = "/run/nccl-exporter/00000000000012a7-0123456789abcdef.seg";

// A false /proc, of the host's PID namespace.
class GpuProcessesTest : public testing::Test {
 protected:
  GpuProcessesTest() {
    std::filesystem::create_directories(Path("self/ns"));
    std::filesystem::create_symlink("pid:[4026531836]", Path("self/ns/pid"));
    Add("1", {"/bin/init"});
    Add("33", {"/opt/libnccl.so.2", "/dev/nvidia0"});
    Add("34", {"/opt/libtorch_cuda.so", "/dev/nvidia1", kSegment});
    Add("35", {"/opt/libnccl.so.2"});  // torchrun
  }

  std::string Path(const std::string& name) const { return proc_.path() + '/' + name; }
  void Add(const std::string& pid, const std::vector<std::string>& files) {
    std::filesystem::create_directories(Path(pid));
    std::ofstream maps(Path(pid) + "/maps");
    for (const std::string& file : files) maps << "7f00-7f01 r-xp 0 00:00 1  " << file << '\n';
  }
  GpuProcesses Find() const { return GpuProcessesIn(proc_.path()); }

  const collector::ScratchDirectory proc_;
};

TEST_F(GpuProcessesTest, CountsThoseThatHaveNcclAndAGpuButNoSegment) {
  EXPECT_EQ(Find().processes, 2u);
  EXPECT_THAT(Find().without_segment, testing::ElementsAre("33"));
  EXPECT_EQ(Find().Unmeasured(), 1u);
}

// 0 would say that all are measured.
TEST_F(GpuProcessesTest, InAPidNamespaceOfItsOwnNothingIsKnown) {
  std::filesystem::remove(Path("self/ns/pid"));
  std::filesystem::create_symlink("pid:[4026532847]", Path("self/ns/pid"));
  EXPECT_EQ(Find().Unmeasured(), std::nullopt);
}

TEST_F(GpuProcessesTest, WhereAProcessCannotBeLookedAtNothingIsKnown) {
  std::filesystem::create_directories(Path("36/maps"));  // cannot be read, also by root
  EXPECT_EQ(Find().Unmeasured(), std::nullopt);
  EXPECT_THAT(Find().without_segment, testing::ElementsAre("33")) << "what is seen is shown";
}

TEST_F(GpuProcessesTest, AProcessThatHasJustEndedHidesNothing) {
  std::filesystem::create_directories(Path("37"));
  EXPECT_EQ(Find().Unmeasured(), 1u);
}

TEST_F(GpuProcessesTest, TheWatchCountsAndCallsNobodyAfterItsEnd) {
  std::promise<std::optional<uint64_t>> first;
  bool is_over = false;
  {
    const UnmeasuredWatch watch(proc_.path(), std::chrono::hours(1), [&](auto count) {
      EXPECT_FALSE(is_over);
      first.set_value(count);
    });
    EXPECT_EQ(first.get_future().get(), 1u);
  }
  is_over = true;
}

}  // namespace
}  // namespace nccl_exporter::exporter
