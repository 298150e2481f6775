// SPDX-License-Identifier: Apache-2.0
// HostReader, signals of the host for the processes of a snapshot, and the adapters nearest to
// their GPUs. Not thread-safe: its owner locks.
//
// The cost is bounded for any number of processes: a look reads some files of each that is
// followed, and surveys one (process_reader.h). With 8 processes of 100 threads a look takes less
// than 0.5 ms on average: host_reader_benchmark.cc.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "collector/host/adapters.h"
#include "collector/host/process_reader.h"
#include "collector/node_snapshot.h"

namespace nccl_exporter::collector {

// Times between two looks at the processes, after which a process is surveyed again at the
// earliest, and between two looks at the adapters.
inline constexpr std::chrono::seconds kHostLookInterval{5};
inline constexpr std::chrono::minutes kSurveyInterval{4}, kAdapterInterval{1};
// Files are read in one look of so many.
inline constexpr uint64_t kLooksPerFile = 3;

class HostReader {
 public:
  explicit HostReader(std::string root = "") : root_(std::move(root)) {}  // see ProcessReader

  // Sets ProcessSnapshot::host of living processes that /proc shows and that were surveyed, and
  // CommunicatorSnapshot::adapter. `monotonic_ns` is the moment of the snapshot. Snapshots between
  // two looks have the values of the latest. A process that has ended keeps its last counters.
  void AddTo(NodeSnapshot& snapshot, int64_t monotonic_ns) {
    if (HasPassed(adapters_read_ns_, monotonic_ns, kAdapterInterval)) {
      adapters_read_ns_ = monotonic_ns;
      adapters_.emplace(root_ + "/sys");
      nearest_.clear();
    }
    if (HasPassed(looked_ns_, monotonic_ns, kHostLookInterval)) {
      looked_ns_ = monotonic_ns;
      Follow(snapshot);
      SurveyOne(monotonic_ns);
      for (auto& [key, reader] : processes_) reader.ReadThreads();
      // In the same look for all, so that ranks of a cgroup have the same counts.
      if (looks_++ % kLooksPerFile == 0) {
        for (auto& [key, reader] : processes_) reader.ReadFiles();
      }
    }
    const auto before = std::exchange(latest_, {});
    for (ProcessSnapshot& process : snapshot.processes) {
      const auto found = processes_.find({process.file, process.seen_pid});
      const auto known = before.find(process.file);
      if (found != processes_.end() && found->second.surveyed_ns()) {
        process.host = found->second.signals();
      } else if (!process.is_alive && known != before.end()) {
        process.host = known->second;
        process.host->verbs_devices.reset();
      }
      if (process.host) latest_.emplace(process.file, *process.host);
      for (CommunicatorSnapshot& communicator : process.communicators) {
        const auto nearest = nearest_.find(communicator.pci_bus_id);
        if (nearest != nearest_.end()) {
          communicator.adapter = nearest->second;
        } else if (nearest_.size() < kMostNames) {  // a process may claim any address
          communicator.adapter = nearest_[communicator.pci_bus_id] =
              adapters_->NearestTo(communicator.pci_bus_id);
        }
      }
    }
  }

 private:
  // Whether an interval has passed, but for a thread that wakes up a little early.
  static bool HasPassed(const std::optional<int64_t>& since_ns, int64_t now_ns,
                        std::chrono::nanoseconds interval) {
    return !since_ns || now_ns - *since_ns >= interval.count() * 9 / 10;
  }

  // The living processes of the snapshot, the oldest first; the others are forgotten.
  void Follow(const NodeSnapshot& snapshot) {
    auto before = std::exchange(processes_, {});
    std::map<uint64_t, size_t> of_user;
    for (const ProcessSnapshot& process : snapshot.processes) {
      if (process.seen_pid == 0 || processes_.size() == kMostHostProcesses ||
          ++of_user[process.uid] > kMostHostProcessesPerUser)
        continue;
      const std::pair key(process.file, process.seen_pid);
      if (const auto known = before.find(key); known != before.end()) {
        processes_.insert(before.extract(known));
      } else {
        processes_.try_emplace(key, root_, process.seen_pid);
      }
    }
  }

  // The process that was never surveyed, or else whose survey is longest ago.
  void SurveyOne(int64_t monotonic_ns) {
    const auto oldest = std::ranges::min_element(
        processes_, {}, [](const auto& entry) { return entry.second.surveyed_ns().value_or(-1); });
    if (oldest != processes_.end() &&
        HasPassed(oldest->second.surveyed_ns(), monotonic_ns, kSurveyInterval))
      oldest->second.Survey(adapters_->HasVerbs(), monotonic_ns);
  }

  const std::string root_;
  std::map<std::pair<FileKey, int>, ProcessReader> processes_;  // by segment and PID
  std::map<FileKey, HostSignals> latest_;                       // of processes in the last snapshot
  std::optional<Adapters> adapters_;
  std::map<std::string, std::string> nearest_;  // by address of the GPU
  std::optional<int64_t> looked_ns_, adapters_read_ns_;
  uint64_t looks_ = 0;
};

}  // namespace nccl_exporter::collector
