// SPDX-License-Identifier: Apache-2.0
// Prints what a callback costs that is passed on to a chained plugin, beside this plugin's own
// cost: the difference between two processes with the same callbacks, one with a chain. Fails above
// the budget. On a busy machine the figure means nothing.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "plugin/bench/callback_script.h"

namespace nccl_exporter::plugin {
namespace {

constexpr int kChannels = 24;
constexpr int kCallbacks = 10 + 3 * kChannels;  // of an AllReduce
constexpr int kOperations = 64;                 // of a batch
constexpr int kBatches = 2000;
constexpr int kRepetitions = 5;
constexpr double kBudgetNs = 60;

// Nanoseconds of a callback, the fastest tenth of all batches.
double Measure() {
  const CallbackScript::Table& table = CallbackScript::LoadTable();
  CallbackScript script(table);
  void* const context = CallbackScript::OpenCommunicator(table);
  const GpuClock clock;
  std::vector<double> batches;
  for (int batch = 0; batch < kBatches; ++batch) {
    const uint64_t begin_ns = ReadBenchmarkClock();
    for (int i = 0; i < kOperations; ++i) {
      void* const coll = script.Call(context, kChannels);
      const uint64_t gpu_ns = clock.Now();
      std::array<void*, kChannels> handles;
      for (uint8_t c = 0; c < kChannels; ++c)
        handles[c] = script.StartChannel(context, coll, c, gpu_ns);
      for (void* const handle : handles) script.StopChannel(handle, gpu_ns + GpuClock::kRunNs);
    }
    batches.push_back(static_cast<double>(ReadBenchmarkClock() - begin_ns) / kOperations /
                      kCallbacks);
  }
  const auto tenth = batches.begin() + kBatches / 10;
  std::nth_element(batches.begin(), tenth, batches.end());
  return *tenth;
}

// In a process of its own: the library reads the variable when it is loaded, and is never unloaded.
double MeasureIn(const char* chain) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) std::abort();
  const pid_t child = fork();
  if (child == 0) {
    chain != nullptr ? setenv("NCCL_EXPORTER_CHAIN", chain, 1) : unsetenv("NCCL_EXPORTER_CHAIN");
    const double ns = Measure();
    _exit(write(pipe_ends[1], &ns, sizeof(ns)) == sizeof(ns) ? 0 : 1);
  }
  close(pipe_ends[1]);
  double ns = 0;
  if (read(pipe_ends[0], &ns, sizeof(ns)) != sizeof(ns)) std::abort();
  close(pipe_ends[0]);
  waitpid(child, nullptr, 0);
  return ns;
}

int Main() {
  const auto chain =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "libchain-nothing.so";
  double alone_ns = 1e9, chained_ns = 1e9;
  for (int i = 0; i < kRepetitions; ++i) {
    alone_ns = std::min(alone_ns, MeasureIn(nullptr));
    chained_ns = std::min(chained_ns, MeasureIn(chain.c_str()));
  }
  const double passed_ns = chained_ns - alone_ns;
  std::printf("a callback: %.1f ns, with a chain %.1f ns; passed on: %.1f ns of at most %.0f\n",
              alone_ns, chained_ns, passed_ns, kBudgetNs);
  return passed_ns <= kBudgetNs ? 0 : 1;
}

}  // namespace
}  // namespace nccl_exporter::plugin

int main() { return nccl_exporter::plugin::Main(); }
