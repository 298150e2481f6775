// SPDX-License-Identifier: Apache-2.0
// HandMadeNode, a snapshot of one job's ranks for tests: each is a process with a GPU.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/testing/example_snapshot.h"

namespace nccl_exporter::exporter {

inline constexpr int64_t kSecond = 1000000000;
inline constexpr int64_t kNow = 1700000100 * kSecond;     // 2023-11-14T22:15:00Z
inline constexpr int64_t kBoot = kNow - 86400 * kSecond;  // where CLOCK_MONOTONIC begins

class HandMadeNode {
 public:
  HandMadeNode() { node.taken_realtime_ns = kNow; }
  // With `processes` of job 4712, whose global ranks are 0, 1 and so on.
  explicit HandMadeNode(uint64_t processes) : HandMadeNode() {
    for (uint64_t rank = 0; rank < processes; ++rank) AddProcess(rank);
  }

  collector::ProcessSnapshot& AddProcess(uint64_t global_rank, const std::string& job = "4712") {
    collector::ProcessSnapshot& process =
        node.processes.emplace_back(EmptyProcess(1000 + node.processes.size()));
    StartedAt(kNow - 3600 * kSecond, process);
    process.identity = {{"SLURM_JOB_ID", job}};
    process.numbers.global_rank = static_cast<uint32_t>(global_rank);
    return process;
  }

  static void StartedAt(int64_t realtime_ns, collector::ProcessSnapshot& process) {
    process.start_realtime_ns = realtime_ns;
    process.start_monotonic_ns = realtime_ns - kBoot;
  }

  // All ranks of the communicator are on this node, unless `ranks` is more than there are
  // processes. Each has completed 100 collectives, the last one ten minutes ago.
  void AddCommunicator(const std::string& name, const std::vector<size_t>& processes,
                       uint64_t ranks = 0) {
    const uint64_t id = (0xabc0 + ++communicators_) << 32;
    for (size_t rank = 0; rank < processes.size(); ++rank) {
      collector::CommunicatorSnapshot communicator = EmptyCommunicator(id, rank);
      communicator.name = name;
      communicator.numbers = node.processes.at(processes[rank]).numbers;
      communicator.ranks = ranks == 0 ? processes.size() : ranks;
      communicator.nodes = communicator.ranks > processes.size() ? 2 : 1;
      communicator.gpu_index = static_cast<int>(processes[rank]);
      communicator.slot = static_cast<uint32_t>(communicators_);
      communicator.completion_is_known = true;
      communicator.created_realtime_ns = kNow - 7200 * kSecond;
      communicator.started_sequence = communicator.completed_sequence = 100;
      ProgressAt(kNow - 600 * kSecond, communicator);
      node.processes.at(processes[rank]).communicators.push_back(communicator);
    }
  }

  // One that is made now: its ranks have called nothing yet.
  void MakeCommunicator(const std::string& name, const std::vector<size_t>& processes) {
    AddCommunicator(name, processes);
    for (const size_t process : processes) {
      collector::CommunicatorSnapshot& communicator = Of(process, name);
      communicator.created_realtime_ns = node.taken_realtime_ns;
      communicator.started_sequence = communicator.completed_sequence = 0;
      communicator.last_progress_realtime_ns = communicator.last_progress_monotonic_ns = 0;
    }
  }

  collector::CommunicatorSnapshot& Of(size_t process, const std::string& name) {
    for (collector::CommunicatorSnapshot& communicator : node.processes.at(process).communicators) {
      if (communicator.name == name) return communicator;
    }
    throw std::out_of_range(name);
  }

  // An operation that the process called so long ago, and that is in flight.
  collector::InFlightOperation& Start(size_t process, const std::string& name, int64_t seconds_ago,
                                      Function function = Function::kAllReduce, int peer = -1) {
    collector::CommunicatorSnapshot& communicator = Of(process, name);
    const bool is_collective = !TraitsOf(function).is_point_to_point;
    if (is_collective) ++communicator.started_sequence;
    ProgressAt(kNow - seconds_ago * kSecond, communicator);
    communicator.in_flight.push_back({.function = function,
                                      .sequence = is_collective ? communicator.started_sequence : 0,
                                      .start_realtime_ns = kNow - seconds_ago * kSecond,
                                      .bytes = 32 << 20,
                                      .peer = peer});
    return communicator.in_flight.back();
  }
  void Start(const std::vector<size_t>& processes, const std::string& name, int64_t seconds_ago,
             Function function = Function::kAllReduce) {
    for (const size_t process : processes) Start(process, name, seconds_ago, function);
  }

  // The process has called and completed one operation more.
  void Complete(size_t process, const std::string& name, int64_t seconds_ago) {
    collector::CommunicatorSnapshot& communicator = Of(process, name);
    ++communicator.started_sequence;
    ++communicator.completed_sequence;
    ProgressAt(kNow - seconds_ago * kSecond, communicator);
  }

  // No completion of the process is seen.
  void HideCompletions(size_t process) {
    for (collector::CommunicatorSnapshot& communicator : node.processes.at(process).communicators) {
      communicator.completion_is_known = false;
      communicator.in_flight.clear();
      communicator.completed_sequence = 0;
    }
  }

  void Wait(int64_t seconds) { node.taken_realtime_ns += seconds * kSecond; }
  // Sets the clock of the node: the collector converts times of CLOCK_MONOTONIC again.
  void SetClock(int64_t seconds) {
    node.taken_realtime_ns += seconds * kSecond;
    for (collector::ProcessSnapshot& process : node.processes) {
      for (collector::CommunicatorSnapshot& communicator : process.communicators) {
        communicator.last_progress_realtime_ns += seconds * kSecond;
        for (collector::InFlightOperation& operation : communicator.in_flight)
          operation.start_realtime_ns += seconds * kSecond;
      }
    }
  }

  collector::NodeSnapshot node;

 private:
  static void ProgressAt(int64_t realtime_ns, collector::CommunicatorSnapshot& communicator) {
    communicator.last_progress_realtime_ns = realtime_ns;
    communicator.last_progress_monotonic_ns = realtime_ns - kBoot;
  }

  uint64_t communicators_ = 0;
};

}  // namespace nccl_exporter::exporter
