// SPDX-License-Identifier: Apache-2.0
// Processes in a folder that is made up as /proc, and the test's own process in the real one.
#include "collector/host/process_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "collector/testing/scratch_directory.h"

namespace nccl_exporter::collector {
namespace {

constexpr pid_t kPid = 4711;

class ProcessReaderTest : public testing::Test {
 protected:
  void Write(const std::string& file, const std::string& text) {
    const std::filesystem::path path = root_.File(file);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  void WriteThread(pid_t id, uint64_t running_ns, uint64_t waiting_ns,
                   const std::string& name = "python") {
    const std::string thread = "proc/4711/task/" + std::to_string(id);
    Write(thread + "/schedstat",
          std::to_string(running_ns) + ' ' + std::to_string(waiting_ns) + " 5\n");
    Write(thread + "/comm", name + '\n');
  }
  void WriteFaults(uint64_t faults) {
    Write("proc/4711/stat", "4711 (a) b) S 1 2 3 4 5 6 7 8 " + std::to_string(faults) + " 10 11\n");
  }
  ProcessReader Reader() const { return {root_.path(), kPid}; }
  static void Look(ProcessReader& reader) {
    reader.ReadThreads();
    reader.ReadFiles();
  }

  ScratchDirectory root_;
};

TEST_F(ProcessReaderTest, CountsTheWaitOfTheThreadThatWaitsLongest) {
  WriteThread(kPid, 1000, 500);
  WriteThread(kPid + 1, 2000, 700);
  ProcessReader reader = Reader();
  reader.Survey(false, 0);
  Look(reader);
  EXPECT_EQ(reader.signals().cpu_wait_ns, 0u) << "what was before counts for nothing";
  WriteThread(kPid, 1100, 530);
  WriteThread(kPid + 1, 2100, 710);
  Look(reader);
  EXPECT_EQ(reader.signals().cpu_wait_ns, 30u);
  WriteThread(kPid + 1, 2200, 800);
  Look(reader);
  EXPECT_EQ(reader.signals().cpu_wait_ns, 120u);
  EXPECT_EQ(reader.signals().progress_cpu_ns, std::nullopt) << "no thread has the name";
}

TEST_F(ProcessReaderTest, FollowsTheThreadsThatRanOrWaitedMost) {
  for (int i = 0; i < 20; ++i) WriteThread(kPid + i, 1000 + i, 0);
  ProcessReader reader = Reader();
  reader.Survey(false, 0);
  WriteThread(kPid, 1000, 9000);  // idle until now
  Look(reader);
  EXPECT_EQ(reader.signals().cpu_wait_ns, 0u);
  reader.Survey(false, 0);
  WriteThread(kPid, 1000, 9500);
  Look(reader);
  EXPECT_EQ(reader.signals().cpu_wait_ns, 500u);
}

TEST_F(ProcessReaderTest, CountsTheCpuTimeOfProgressThreadsAndKeepsThem) {
  WriteThread(kPid, 1000, 0);
  WriteThread(kPid + 1, 9000, 0, "NCCL Progress 0");
  ProcessReader reader = Reader();
  reader.Survey(false, 0);
  for (int i = 2; i < 10; ++i) WriteThread(kPid + i, 100000, 0);
  reader.Survey(false, 0);
  WriteThread(kPid + 1, 9300, 0, "NCCL Progress 0");
  Look(reader);
  EXPECT_EQ(reader.signals().progress_cpu_ns, 300u);
}

// Regression: progress threads took all places, and the wait of the main thread was not seen.
TEST_F(ProcessReaderTest, FollowsBusyThreadsBesideProgressThreads) {
  for (int i = 1; i <= 4; ++i) WriteThread(kPid + i, 9000, 0, "NCCL Progress");
  ProcessReader reader = Reader();
  reader.Survey(false, 0);
  WriteThread(kPid, 90000, 0);
  reader.Survey(false, 0);
  WriteThread(kPid, 90000, 500);
  for (int i = 1; i <= 4; ++i) WriteThread(kPid + i, 9100, 0, "NCCL Progress");
  Look(reader);
  EXPECT_EQ(reader.signals().cpu_wait_ns, 500u);
  EXPECT_EQ(reader.signals().progress_cpu_ns, 400u);
}

TEST_F(ProcessReaderTest, CountsInvoluntarySwitches) {
  const std::string before = "Name:\tx\nvoluntary_ctxt_switches:\t9\n";
  Write("proc/4711/status", before + "nonvoluntary_ctxt_switches:\t10\n");
  ProcessReader reader = Reader();
  Look(reader);
  EXPECT_EQ(reader.signals().involuntary_switches, 10u);
}

TEST_F(ProcessReaderTest, CountsMajorFaultsAndTheCgroup) {
  Write("proc/4711/cgroup", "0::/job\n");
  Write("sys/fs/cgroup/cgroup.controllers", "cpu\n");
  Write("sys/fs/cgroup/job/cpu.max", "50000 100000\n");
  Write("sys/fs/cgroup/job/cpu.stat", "throttled_usec 4000\n");
  Write("sys/fs/cgroup/job/memory.pressure", "some avg10=0.00 total=500\n");
  WriteFaults(70);
  ProcessReader reader = Reader();
  reader.Survey(false, 0);
  Look(reader);
  EXPECT_EQ(reader.signals().major_faults, 70u);
  EXPECT_EQ(reader.signals().throttled_ns, 0u) << "from the first look on";
  EXPECT_EQ(reader.signals().memory_stall_ns, 0u);
  Write("sys/fs/cgroup/job/cpu.stat", "throttled_usec 4001\n");
  Write("sys/fs/cgroup/job/memory.pressure", "some avg10=0.00 total=505\n");
  Look(reader);
  EXPECT_EQ(reader.signals().throttled_ns, 1000u);
  EXPECT_EQ(reader.signals().memory_stall_ns, 5000u);
  std::filesystem::remove(root_.File("sys/fs/cgroup/job/memory.pressure"));
  Look(reader);
  EXPECT_EQ(reader.signals().memory_stall_ns, std::nullopt);
}

TEST_F(ProcessReaderTest, AProcessWithoutAQuotaIsNotThrottledUntilItIsMoved) {
  Write("proc/4711/cgroup", "0::/free\n");
  Write("sys/fs/cgroup/free/cpu.max", "max 100000\n");
  Write("sys/fs/cgroup/job/cpu.max", "50000 100000\n");
  Write("sys/fs/cgroup/job/cpu.stat", "throttled_usec 4000\n");
  ProcessReader reader = Reader();
  reader.Survey(false, 0);
  Look(reader);
  EXPECT_EQ(reader.signals().throttled_ns, std::nullopt) << "its cgroup is not seen";
  Write("sys/fs/cgroup/free/cgroup.procs", "4711\n");
  reader.Survey(false, 0);
  Look(reader);
  EXPECT_EQ(reader.signals().throttled_ns, 0u);
  Write("proc/4711/cgroup", "0::/job\n");
  reader.Survey(false, 0);
  Look(reader);
  EXPECT_EQ(reader.signals().throttled_ns, 0u) << "others were throttled there before";
  Write("sys/fs/cgroup/job/cpu.stat", "throttled_usec 4007\n");
  Look(reader);
  EXPECT_EQ(reader.signals().throttled_ns, 7000u);
}

TEST_F(ProcessReaderTest, FindsTheCgroupsOfV2BesideThoseOfV1) {
  Write("proc/4711/cgroup", "4:memory:/other\n3:cpu,cpuacct:/slurm\n0::/job\n");
  Write("sys/fs/cgroup/cpu/slurm/cgroup.procs", "4711\n");
  Write("sys/fs/cgroup/unified/job/memory.pressure", "some avg10=0.00 total=5\n");
  ProcessReader reader = Reader();
  reader.Survey(false, 0);
  Look(reader);
  EXPECT_EQ(reader.signals().throttled_ns, 0u);
  Write("sys/fs/cgroup/unified/job/memory.pressure", "some avg10=0.00 total=9\n");
  Look(reader);
  EXPECT_EQ(reader.signals().memory_stall_ns, 4000u);
}

// Absent, and not 0: hidepid, another PID namespace, or a kernel that does not count.
TEST_F(ProcessReaderTest, SaysNothingOfWhatItCannotRead) {
  ProcessReader reader = Reader();
  reader.Survey(true, 0);
  Look(reader);
  EXPECT_EQ(reader.signals(), HostSignals());
  Write("proc/4711/task/4711/schedstat", "0 0 0\n");
  reader.Survey(true, 0);
  Look(reader);
  EXPECT_EQ(reader.signals(), HostSignals());
}

TEST_F(ProcessReaderTest, ForgetsThreadsThatEnd) {
  WriteThread(kPid, 1000, 500);
  ProcessReader reader = Reader();
  reader.Survey(false, 0);
  Look(reader);
  Write("proc/4711/task/4711/schedstat", "");
  Look(reader);
  EXPECT_EQ(reader.signals().cpu_wait_ns, std::nullopt);
}

TEST_F(ProcessReaderTest, CountsDevicesForVerbs) {
  std::filesystem::create_directories(root_.File("proc/4711/fd"));
  ProcessReader reader = Reader();
  reader.Survey(true, 0);
  EXPECT_EQ(reader.signals().verbs_devices, std::nullopt) << "each process has some descriptor";
  int number = 0;
  std::filesystem::create_symlink("/dev/null", root_.File("proc/4711/fd/99"));
  reader.Survey(true, 0);
  EXPECT_EQ(reader.signals().verbs_devices, 0u);
  for (const char* target : {"/dev/infiniband/uverbs0", "/dev/infiniband/uverbs1", "socket:[7]",
                             "/dev/infiniband/uverbs0", "/dev/nvidia0"})
    std::filesystem::create_symlink(target, root_.File("proc/4711/fd/" + std::to_string(number++)));
  reader.Survey(true, 0);
  EXPECT_EQ(reader.signals().verbs_devices, 2u);
  reader.Survey(false, 0);
  EXPECT_EQ(reader.signals().verbs_devices, std::nullopt) << "the node has no adapter with a link";
}

TEST(ProcessReaderOfTheKernel, ReadsTheTestItself) {
  if (::access("/proc/self/schedstat", R_OK) != 0) GTEST_SKIP() << "this kernel has no schedstat";
  ProcessReader reader("", ::getpid());
  reader.Survey(true, 0);
  reader.ReadThreads();
  reader.ReadFiles();
  EXPECT_TRUE(reader.signals().cpu_wait_ns);
  EXPECT_TRUE(reader.signals().involuntary_switches);
  EXPECT_TRUE(reader.signals().major_faults);
  EXPECT_EQ(reader.signals().verbs_devices, 0u);
}

}  // namespace
}  // namespace nccl_exporter::collector
