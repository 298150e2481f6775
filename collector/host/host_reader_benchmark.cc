// SPDX-License-Identifier: Apache-2.0
// The cost of a look at the host of a node with 8 processes of 100 threads, on average over all
// looks between two surveys of a process: at most 0.5 ms in 5 s.
#include <benchmark/benchmark.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>
#include <vector>

#include "collector/host/host_reader.h"

namespace nccl_exporter::collector {
namespace {

constexpr int kProcesses = 8;
constexpr int kThreads = 100;

// A process whose threads wait for its end.
pid_t StartProcess() {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (int i = 1; i < kThreads; ++i) std::thread([] { ::pause(); }).detach();
  ::pause();
  std::_Exit(0);
}

void BM_Look(benchmark::State& state) {
  NodeSnapshot node;
  for (int i = 0; i < kProcesses; ++i) {
    ProcessSnapshot& process = node.processes.emplace_back();
    process.file = {.device = 1, .inode = static_cast<uint64_t>(i)};
    process.is_alive = true;
    process.seen_pid = StartProcess();
    process.communicators.emplace_back().pci_bus_id = "0000:1" + std::to_string(i) + ":00.0";
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // until the threads are there
  HostReader reader;
  int64_t now_ns = 0;
  const auto look = [&] {
    now_ns += std::chrono::nanoseconds(kHostLookInterval).count();
    reader.AddTo(node, now_ns);
  };
  for (int i = 0; i < kProcesses; ++i) look();  // first surveys
  for (auto _ : state) look();
  for (const ProcessSnapshot& process : node.processes) {
    ::kill(process.seen_pid, SIGKILL);
    ::waitpid(process.seen_pid, nullptr, 0);
  }
}
// So many looks that each process is surveyed five times.
BENCHMARK(BM_Look)->Iterations(240)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace nccl_exporter::collector
