// SPDX-License-Identifier: Apache-2.0
// Order and cap of a scrape's series.
#include "exporter/snapshot_families.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "exporter/communicator_series.h"
#include "exporter/exposition_builder.h"
#include "exporter/subject_table.h"

namespace nccl_exporter {
namespace {

Metric MetricOf(LossKind kind) {
  switch (kind) {
    case LossKind::kDropped:
      return Metric::kEventsDropped;
    case LossKind::kUnmatched:
      return Metric::kEventsUnmatched;
    case LossKind::kTimestampRejected:
      break;
  }
  return Metric::kTimestampsRejected;
}

class SnapshotFamilies {
 public:
  SnapshotFamilies(const NodeSnapshot& snapshot, size_t series_limit, SeriesMemory& memory, Exposition& exposition)
      : snapshot_(snapshot),
        series_limit_(series_limit),
        named_limit_(series_limit - std::min(series_limit, kSeriesForOthers)),
        memory_(memory),
        builder_(exposition),
        communicators_(builder_, memory) {}

  SeriesDrops Add() {
    memory_.departed.Begin(snapshot_);
    AddSegments();
    AddProcesses();
    AddCommunicators();
    memory_.labels.Sweep();
    return drops_;
  }

 private:
  void AddSegments() {
    const SegmentCounts& segments = snapshot_.segments;
    const std::array<std::pair<std::string_view, uint64_t>, 4> states{{{"live", segments.live},
                                                                       {"starting", segments.starting},
                                                                       {"exited", segments.exited},
                                                                       {"unusable", segments.unusable}}};
    for (const auto& [state, count] : states) {
      builder_.Add(Metric::kSegments, kNoLabels, builder_.AddLabel("state", state), static_cast<double>(count));
    }
    for (size_t i = 0; i < kSegmentErrors.size(); ++i) {
      builder_.Add(Metric::kSegmentReadErrors, kNoLabels, builder_.AddLabel("reason", kSegmentErrors[i]),
                   static_cast<double>(snapshot_.segment_errors[i]));
    }
    for (size_t i = 0; i < kUncomparedReasons.size(); ++i) {
      builder_.Add(Metric::kUncomparedOperations, kNoLabels, builder_.AddLabel("reason", kUncomparedReasons[i]),
                   static_cast<double>(snapshot_.uncompared_operations[i]));
    }
    builder_.Add(Metric::kArrivalMatching, kNoLabels, kNoLabels,
                 static_cast<double>(snapshot_.arrival_matching_ns) / 1e9);
    builder_.Add(Metric::kSnapshotTimestamp, kNoLabels, kNoLabels,
                 static_cast<double>(snapshot_.taken_realtime_ns) / 1e9);
  }

  struct Process {
    SharedLabels labels;
    std::vector<const ProcessSnapshot*> members;
    std::array<uint64_t, kLossCount> losses{};
    bool is_alive = false;
    std::optional<bool> is_stopped = std::nullopt;
    int64_t since_ns = 0;
  };

  // Processes with the same labels (the same pid in two containers that no job label tells apart, or a label that is
  // dropped) are summed; live while one of them does, and stopped while one is.
  std::vector<Process> ProcessesByLabels() {
    std::vector<Process> processes;
    std::unordered_map<const LabelSet*, size_t> index;  // equal sets are one object of the cache
    for (const ProcessSnapshot& process : snapshot_.processes) {
      const SharedLabels& labels = memory_.labels.OfProcess(process);
      const auto [entry, is_new] = index.try_emplace(labels.get(), processes.size());
      if (is_new) processes.push_back({.labels = labels, .members = {}, .since_ns = process.start_realtime_ns});
      Process& sum = processes[entry->second];
      sum.members.push_back(&process);
      for (size_t i = 0; i < kLossCount; ++i) sum.losses[i] += process.losses[i];
      sum.is_alive |= process.is_alive;
      if (process.is_stopped) sum.is_stopped = sum.is_stopped.value_or(false) || *process.is_stopped;
      sum.since_ns = std::min(sum.since_ns, process.start_realtime_ns);
    }
    return processes;
  }

  void AddDeparted(Process& sum) {
    const DepartedProcesses* const departed = memory_.departed.ProcessesOf(sum.labels);
    if (departed == nullptr && sum.members.size() == 1) return;
    for (const ProcessSnapshot* process : sum.members) memory_.departed.Remember(sum.labels, *process);
    if (departed == nullptr) return;
    for (size_t i = 0; i < kLossCount; ++i) sum.losses[i] += departed->losses[i];
    sum.since_ns = std::min(sum.since_ns, departed->start_realtime_ns);
  }

  size_t SamplesOf(const Process& process) const {
    size_t samples =
        builder_.Serves(Metric::kRankAlive) + (process.is_stopped && builder_.Serves(Metric::kRankStopped));
    for (const LossTraits& loss : kLosses) samples += builder_.Serves(MetricOf(loss.kind));
    return samples;
  }

  void AddProcesses() {
    std::array<LabelsId, kLossCount> reasons{};
    for (size_t i = 0; i < kLossCount; ++i) reasons[i] = builder_.AddLabel("reason", kLosses[i].reason);
    for (Process& sum : ProcessesByLabels()) {
      AddDeparted(sum);
      const size_t samples = SamplesOf(sum);
      if (builder_.samples() + samples > named_limit_) {
        drops_.left_out += samples;
        continue;
      }
      const LabelsId process = builder_.AddLabels(sum.labels);
      builder_.Add(Metric::kRankAlive, process, kNoLabels, sum.is_alive ? 1 : 0);
      if (sum.is_stopped) builder_.Add(Metric::kRankStopped, process, kNoLabels, *sum.is_stopped ? 1 : 0);
      builder_.CountSince(sum.since_ns);
      for (size_t i = 0; i < kLossCount; ++i) {
        builder_.Add(MetricOf(kLosses[i].kind), process, reasons[i], static_cast<double>(sum.losses[i]));
      }
    }
  }

  void AddCommunicators() {
    SubjectTable subjects(snapshot_, memory_.labels, memory_.departed);
    for (size_t i = 0; i < subjects.named().size(); ++i) {
      if (AddWithin(named_limit_, &CommunicatorSeries::AddNamed, subjects.named()[i]) == 0) continue;
      // The cap is reached: count what these would have been (nothing fits a limit of 0), then fold them, which ends
      // the loop.
      for (size_t j = i; j < subjects.named().size(); ++j) {
        drops_.folded += AddWithin(0, &CommunicatorSeries::AddNamed, subjects.named()[j]);
      }
      subjects.FoldFrom(i);
    }
    for (const Subject& other : subjects.others()) {
      drops_.left_out += AddWithin(series_limit_, &CommunicatorSeries::AddOther, other);
    }
    for (const std::vector<Subject>* group : {&subjects.named(), &subjects.others()}) {
      for (const Subject& subject : *group) {
        if (subject.members.size() > 1) memory_.departed.Remember(subject.labels, subject.members);
      }
    }
  }

  // Adds a subject if the samples then number at most `limit`; else adds nothing and returns how many it has.
  size_t AddWithin(size_t limit, void (CommunicatorSeries::*add)(const Subject&), const Subject& subject) {
    builder_.SetMark(mark_);
    (communicators_.*add)(subject);
    if (builder_.samples() <= limit) return 0;
    const size_t samples = builder_.samples() - mark_.samples;
    builder_.RollBack(mark_);
    return samples;
  }

  const NodeSnapshot& snapshot_;
  const size_t series_limit_;
  const size_t named_limit_;
  SeriesMemory& memory_;
  ExpositionBuilder builder_;
  CommunicatorSeries communicators_;
  ExpositionBuilder::Mark mark_;
  SeriesDrops drops_;
};

}  // namespace

SeriesDrops AddSnapshotFamilies(std::shared_ptr<const NodeSnapshot> snapshot, size_t series_limit, SeriesMemory& memory,
                                Exposition& exposition) {
  exposition.owners.push_back(snapshot);
  const SeriesDrops drops = SnapshotFamilies(*snapshot, series_limit, memory, exposition).Add();
  memory.departed.End(std::move(snapshot));
  return drops;
}

}  // namespace nccl_exporter
