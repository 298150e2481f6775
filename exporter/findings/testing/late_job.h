// SPDX-License-Identifier: Apache-2.0
// LateJob, a node with a job for tests of the judgement of late ranks: counts are made by hand, in
// steps of 5 s.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "exporter/findings/late_ranks.h"
#include "exporter/ledger/ledger.h"
#include "exporter/ledger/node_history.h"
#include "exporter/testing/example_snapshot.h"

namespace nccl_exporter::exporter {

class LateJob {
 public:
  static constexpr int64_t kSecondNs = 1000000000;
  static constexpr int64_t kStepSeconds = 5;

  explicit LateJob(size_t processes, const Thresholds& times = {}, double time_scale = 1)
      : ledger_(TimesOf(times, time_scale)),
        late_(times),
        step_ns_(static_cast<int64_t>(kStepSeconds * kSecondNs / time_scale)) {
    node_.taken_realtime_ns = 1700000000 * kSecondNs;
    for (size_t i = 0; i < processes; ++i) {
      node_.processes.push_back(EmptyProcess(5000 + i));
      node_.processes.back().identity = {{"SLURM_JOB_ID", "4720"}};
      node_.processes.back().numbers.global_rank = static_cast<uint32_t>(i);
    }
  }

  // A communicator of these processes, whose ranks are 0, 1, 2, ... in it.
  void Make(uint64_t id, const std::string& name, const std::vector<size_t>& processes,
            uint64_t ranks = 0, uint64_t nodes = 1) {
    for (size_t i = 0; i < processes.size(); ++i) {
      std::vector<collector::CommunicatorSnapshot>& here =
          node_.processes[processes[i]].communicators;
      here.push_back(EmptyCommunicator(id, i));
      here.back().name = name;
      here.back().numbers = node_.processes[processes[i]].numbers;
      here.back().slot = static_cast<uint32_t>(here.size());
      here.back().ranks = ranks == 0 ? processes.size() : ranks;
      here.back().nodes = nodes;
      here.back().gpu_index = static_cast<int>(processes[i]);
      here.back().created_realtime_ns = node_.taken_realtime_ns;
    }
  }

  collector::CommunicatorSnapshot& In(size_t process, uint64_t id) {
    for (collector::CommunicatorSnapshot& communicator : node_.processes[process].communicators) {
      if (communicator.id == id) return communicator;
    }
    return node_.processes.at(node_.processes.size()).communicators.front();  // throws
  }

  // For one step: the process is in operations of the communicator for this share of the time.
  void Busy(size_t process, uint64_t id, double share, Function function = Function::kAllReduce,
            uint64_t operations = 50, uint64_t timed = 50, uint64_t bytes = 1 << 20) {
    collector::SizeClassSnapshot& size = In(process, id)
                                             .functions.Change(static_cast<size_t>(function))
                                             .sizes[static_cast<size_t>(SizeClassOf(bytes))];
    size.operations += operations;
    size.bytes += operations * bytes;
    size.timed_operations += timed;
    size.timed_bytes += timed * bytes;
    size.busy_ns +=
        static_cast<uint64_t>(share * static_cast<double>(step_ns_)) * timed / operations;
  }

  void Arrive(size_t process, uint64_t id, uint64_t compared, uint64_t last,
              double lateness_share) {
    collector::CommunicatorSnapshot& communicator = In(process, id);
    if (!communicator.arrivals) communicator.arrivals.emplace();
    *communicator.arrivals +=
        {.compared = compared,
         .last = last,
         .lateness_ns = static_cast<uint64_t>(lateness_share * static_cast<double>(step_ns_))};
  }

  // Steps, each of which `work` fills.
  void Run(int seconds, const std::function<void()>& work) {
    for (int64_t end = seconds; end > 0; end -= kStepSeconds) {
      work();
      node_.taken_realtime_ns += step_ns_;
      monotonic_ns_ += step_ns_;
      const auto node = std::make_shared<const collector::NodeSnapshot>(node_);
      history_.Record(*ledger_.Enter(node, {.monotonic_ns = monotonic_ns_,
                                            .realtime_ns = node_.taken_realtime_ns}),
                      monotonic_ns_);
      late_.Record(node_, history_, monotonic_ns_);
      for (const Finding& finding : Findings())
        named_.push_back(finding.culprits.front().pid - 5000);
    }
  }

  std::vector<Finding> Findings() const { return late_.Findings(node_); }
  // Processes of the findings now, and of all steps so far.
  std::vector<size_t> Named() const {
    std::vector<size_t> named;
    for (const Finding& finding : Findings()) named.push_back(finding.culprits.front().pid - 5000);
    return named;
  }
  const std::vector<size_t>& EverNamed() const { return named_; }
  double LearningSeconds() const { return late_.LearningSeconds(); }
  int64_t taken_realtime_ns() const { return node_.taken_realtime_ns; }
  collector::NodeSnapshot& node() { return node_; }

 private:
  static LedgerTimes TimesOf(const Thresholds& thresholds, double time_scale) {
    LedgerTimes times = LedgerTimes().Scaled(time_scale);
    times.longest_step_ns = thresholds.longest_step.count();
    return times;
  }

  collector::NodeSnapshot node_;
  Ledger ledger_;
  NodeHistory history_;
  LateRanks late_;
  int64_t step_ns_;
  int64_t monotonic_ns_ = 1000 * kSecondNs;
  std::vector<size_t> named_;
};

}  // namespace nccl_exporter::exporter
