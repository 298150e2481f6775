// SPDX-License-Identifier: Apache-2.0
#include "collector/host/host_reader.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "collector/testing/scratch_directory.h"

namespace nccl_exporter::collector {
namespace {

constexpr int64_t kLookNs = std::chrono::nanoseconds(kHostLookInterval).count();

ProcessSnapshot ThisProcess(uint64_t inode = 1, uint64_t uid = 1000) {
  ProcessSnapshot process;
  process.file = {.device = 1, .inode = inode};
  process.is_alive = true;
  process.seen_pid = ::getpid();
  process.uid = uid;
  return process;
}

NodeSnapshot NodeOf(size_t processes, uint64_t uid = 1000) {
  NodeSnapshot node;
  for (size_t i = 0; i < processes; ++i) node.processes.push_back(ThisProcess(i, uid));
  return node;
}

size_t Seen(const NodeSnapshot& node) {
  return static_cast<size_t>(std::ranges::count_if(
      node.processes, [](const auto& each) { return each.host.has_value(); }));
}

TEST(HostReader, ReadsEachProcessAfterItsSurveyOneInALook) {
  HostReader reader;
  for (size_t look = 1; look <= 4; ++look) {
    NodeSnapshot node = NodeOf(3);
    reader.AddTo(node, static_cast<int64_t>(look) * kLookNs);
    EXPECT_EQ(Seen(node), std::min<size_t>(look, 3));
    NodeSnapshot between = NodeOf(3);
    reader.AddTo(between, static_cast<int64_t>(look) * kLookNs + kLookNs / 2);
    EXPECT_EQ(Seen(between), Seen(node)) << "a scrape between two looks has the latest";
  }
}

// Regression: each was read in a third look of its own. Of two ranks in a container, one had waited
// for its memory twice as long as the other.
TEST(HostReader, ReadsTheFilesOfAllProcessesInTheSameLook) {
  const ScratchDirectory root;
  const auto write = [&root](const std::string& file, const std::string& text) {
    const std::filesystem::path path = root.File(file);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  };
  const std::string process = "/proc/" + std::to_string(::getpid());
  write(process + "/cgroup", "0::/pod\n");
  HostReader reader(root.path());
  std::optional<uint64_t> apart_ns;
  for (int64_t look = 1; look <= 20; ++look) {
    const std::string stall_us = std::to_string(1000 * look);
    write("/sys/fs/cgroup/pod/memory.pressure", "some avg10=0.00 total=" + stall_us + '\n');
    NodeSnapshot node = NodeOf(look < 6 ? 1 : 2);  // the second one begins later
    reader.AddTo(node, look * kLookNs);
    if (look < 12) continue;
    const uint64_t own_ns = *node.processes[0].host->memory_stall_ns,
                   other_ns = *node.processes[1].host->memory_stall_ns;
    if (!apart_ns) apart_ns = own_ns - other_ns;
    EXPECT_EQ(own_ns - other_ns, apart_ns);
  }
}

TEST(HostReader, SaysNothingOfProcessesThatProcDoesNotShow) {
  HostReader reader;
  NodeSnapshot node = NodeOf(2);
  node.processes[0].seen_pid = 0;
  node.processes[1].seen_pid = 0;
  reader.AddTo(node, kLookNs);
  EXPECT_EQ(Seen(node), 0u);
}

// Regression: their series went before the others of the process.
TEST(HostReader, KeepsTheCountersOfAProcessThatHasEnded) {
  HostReader reader;
  NodeSnapshot node = NodeOf(1);
  reader.AddTo(node, kLookNs);
  ASSERT_TRUE(node.processes[0].host);
  const auto switches = node.processes[0].host->involuntary_switches;
  for (int64_t look = 2; look <= 4; ++look) {
    node = NodeOf(1);
    node.processes[0].is_alive = false;
    node.processes[0].seen_pid = 0;
    reader.AddTo(node, look * kLookNs);
    ASSERT_TRUE(node.processes[0].host);
    EXPECT_EQ(node.processes[0].host->involuntary_switches, switches);
    EXPECT_FALSE(node.processes[0].host->verbs_devices);
  }
}

// So that a user with many processes does not take another's place.
TEST(HostReader, FollowsAHalfOfTheMostForOneUser) {
  HostReader reader;
  NodeSnapshot node;
  for (int64_t look = 1; look <= 40; ++look) {
    node = NodeOf(3 * kMostHostProcesses);
    node.processes.push_back(ThisProcess(999, 1001));
    reader.AddTo(node, look * kLookNs);
  }
  EXPECT_EQ(Seen(node), kMostHostProcessesPerUser + 1);
  EXPECT_TRUE(node.processes.back().host);
}

// A segment whose writer is another process now, as after exec or a restore.
TEST(HostReader, ForgetsAProcessThatIsReplaced) {
  HostReader reader;
  NodeSnapshot node = NodeOf(1);
  reader.AddTo(node, kLookNs);
  EXPECT_EQ(Seen(node), 1u);
  node = NodeOf(1);
  node.processes[0].seen_pid = ::getppid();
  reader.AddTo(node, kLookNs + kLookNs / 2);
  EXPECT_EQ(Seen(node), 0u) << "not looked at yet";
}

}  // namespace
}  // namespace nccl_exporter::collector
