// SPDX-License-Identifier: Apache-2.0
#include "exporter/series/process_series.h"

#include <algorithm>
#include <unordered_map>

namespace nccl_exporter::exporter {
namespace {

Metric MetricOf(LossKind kind) {
  switch (kind) {
    case LossKind::kDropped:
      return Metric::kEventsDropped;
    case LossKind::kUnmatched:
      return Metric::kEventsUnmatched;
    case LossKind::kTimestampRejected:
    case LossKind::kCount:
      break;
  }
  return Metric::kTimestampsRejected;
}

template <typename Predicate>
uint64_t SumOfLosses(const ProcessGroup& process, Predicate predicate) {
  uint64_t sum = 0;
  for (size_t i = 0; i < kLossCount; ++i) {
    if (predicate(static_cast<Loss>(i))) sum += process.sum.losses[i];
  }
  return sum;
}

bool IsRejected(Loss loss) { return TraitsOf(loss).kind == LossKind::kTimestampRejected; }

bool Replaces(const collector::ProcessSnapshot& one, const collector::ProcessSnapshot& ended) {
  const bool is_later =
      one.host_name == ended.host_name && one.start_monotonic_ns > ended.start_monotonic_ns;
  return one.is_alive && !ended.is_alive && (is_later || one.pid != ended.pid);
}

bool IsReplaced(const collector::ProcessSnapshot& process, const ProcessGroup& group) {
  return std::ranges::any_of(group.members, [&](const collector::ProcessSnapshot* other) {
    return Replaces(*other, process);
  });
}

}  // namespace

std::vector<ProcessGroup> ProcessGroups(const Book& book, LabelCache& cache, KeptCounts& kept,
                                        ReplacedProcesses& replaced) {
  std::vector<ProcessGroup> processes;
  std::unordered_map<const LabelSet*, size_t> index;  // equal sets are one object of the cache
  for (const collector::ProcessSnapshot& process : book.node->processes) {
    const SharedLabels& labels = cache.OfProcess(process);
    if (!labels) continue;  // its user has no budget for new label sets
    const auto [entry, is_new] = index.try_emplace(labels.get(), processes.size());
    if (is_new) processes.push_back({.labels = labels, .members = {}});
    ProcessGroup& group = processes[entry->second];
    group.members.push_back(&process);
    group.is_alive |= process.is_alive;
    if (process.is_alive) group.unread += process.unread_in_use;
    // Processes are in the order of their start.
    if (process.host) group.host = &*process.host;
    group.environment = cache.OfEnvironment(process);
    if (process.is_stopped)
      group.is_stopped = group.is_stopped.value_or(false) || *process.is_stopped;
  }
  for (ProcessGroup& group : processes) {
    for (const collector::ProcessSnapshot* process : group.members) {
      if (IsReplaced(*process, group)) {
        replaced.insert(process);
      } else {
        group.is_halted |= process->IsHalted();
      }
    }
    group.sum = kept.CountShared(group.labels, group.members);
  }
  return processes;
}

ProcessSeries::ProcessSeries(ExpositionBuilder& builder) : builder_(builder) {
  for (size_t i = 0; i < kLossCount; ++i)
    reasons_[i] = builder_.AddLabel("reason", kLosses[i].reason);
}

void ProcessSeries::AddCount(Metric metric, LabelsId labels, uint64_t count) {
  if (count != 0) builder_.Add(metric, labels, kNoLabels, static_cast<double>(count));
}

void ProcessSeries::AddSignal(Metric metric, LabelsId labels, const ProcessGroup& process,
                              Signal signal, double units) {
  if (process.host == nullptr || !(process.host->*signal)) return;
  builder_.CountSince(process.sum.since_realtime_ns);
  builder_.Add(metric, labels, kNoLabels, static_cast<double>(*(process.host->*signal)) / units);
}

void ProcessSeries::AddAlerts(const ProcessGroup& process) {
  const LabelsId labels = builder_.AddLabels(process.labels);
  builder_.Add(Metric::kProcessHalted, labels, kNoLabels, process.is_halted ? 1 : 0);
  using collector::HostSignals;
  AddSignal(Metric::kProcessCpuWait, labels, process, &HostSignals::cpu_wait_ns, 1e9);
  AddSignal(Metric::kProcessThrottled, labels, process, &HostSignals::throttled_ns, 1e9);
  AddSignal(Metric::kProcessMemoryStall, labels, process, &HostSignals::memory_stall_ns, 1e9);
  AddSignal(Metric::kProcessMajorFaults, labels, process, &HostSignals::major_faults);
  AddSignal(Metric::kProcessVerbsDevices, labels, process, &HostSignals::verbs_devices);
  builder_.CountSince(process.sum.since_realtime_ns);
  AddCount(Metric::kOperationsUnfollowed, labels, SumOfLosses(process, IsUnfollowed));
  AddCount(Metric::kOperationsRejected, labels, SumOfLosses(process, IsRejected));
  if (!process.sum.counts || !process.sum.counts->point_to_point_operations) return;
  builder_.CountSince(process.sum.counts->since_realtime_ns);
  builder_.Add(Metric::kProcessPointToPoint, labels, kNoLabels,
               static_cast<double>(*process.sum.counts->point_to_point_operations));
}

void ProcessSeries::AddDetail(const ProcessGroup& process) {
  if (!builder_.ServesDetail()) return;
  const LabelsId labels = builder_.AddLabels(process.labels);
  builder_.Add(Metric::kProcessAlive, labels, kNoLabels, process.is_alive ? 1 : 0);
  if (process.is_stopped)
    builder_.Add(Metric::kProcessStopped, labels, kNoLabels, *process.is_stopped ? 1 : 0);
  if (process.environment)
    builder_.Add(Metric::kProcessEnvironmentInfo, labels, builder_.AddLabels(process.environment),
                 1);
  using collector::HostSignals;
  AddSignal(Metric::kProcessInvoluntarySwitches, labels, process,
            &HostSignals::involuntary_switches);
  AddSignal(Metric::kProcessProgressCpu, labels, process, &HostSignals::progress_cpu_ns, 1e9);
  builder_.CountSince(process.sum.since_realtime_ns);
  for (size_t i = 0; i < kLossCount; ++i) {
    builder_.Add(MetricOf(kLosses[i].kind), labels, reasons_[i],
                 static_cast<double>(process.sum.losses[i]));
  }
  const auto& [chained_callbacks, chained_ns] = process.sum.chained;
  if (chained_callbacks != 0) {
    AddCount(Metric::kProcessChainedCallbacks, labels, chained_callbacks);
    builder_.Add(Metric::kProcessChainedSeconds, labels, kNoLabels,
                 static_cast<double>(chained_ns) / 1e9);
  }
  if (!process.sum.counts || !process.sum.counts->kernel_ns) return;
  builder_.CountSince(process.sum.counts->since_realtime_ns);
  builder_.Add(Metric::kProcessKernelSeconds, labels, kNoLabels,
               static_cast<double>(*process.sum.counts->kernel_ns) / 1e9);
}

void ProcessSeries::AddUnserved(const std::vector<ProcessGroup>& processes,
                                const UnservedCommunicators& folded, size_t series_limit) {
  for (const ProcessGroup& process : processes) {
    uint64_t unserved = process.unread;
    for (const collector::ProcessSnapshot* member : process.members) {
      const auto found = folded.find(member);
      if (found != folded.end()) unserved += found->second;
    }
    if (unserved != 0 && builder_.samples() < series_limit)
      AddCount(Metric::kProcessUnserved, builder_.AddLabels(process.labels), unserved);
  }
}

}  // namespace nccl_exporter::exporter
