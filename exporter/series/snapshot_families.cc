// SPDX-License-Identifier: Apache-2.0
#include "exporter/series/snapshot_families.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "exporter/series/communicator_series.h"
#include "exporter/series/exposition_builder.h"
#include "exporter/series/series_group.h"

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

class SnapshotFamilies {
 public:
  SnapshotFamilies(const collector::NodeSnapshot& snapshot, size_t series_limit,
                   SeriesMemory& memory, Exposition& exposition)
      : snapshot_(snapshot),
        series_limit_(series_limit),
        named_limit_(series_limit - std::min(series_limit, kSeriesForOthers)),
        memory_(memory),
        builder_(exposition),
        communicators_(builder_, memory.labels, memory.functions) {}

  // Nearly all nodes fit, so everything is added at once. Only if it does not fit, it is removed
  // and added by shares.
  SeriesDrops Add() {
    memory_.departed.Begin(snapshot_);
    AddSegments();
    std::vector<Process> processes = ProcessesByLabels();
    for (Process& process : processes) AddDeparted(process);
    SeriesGroups groups(snapshot_, memory_.labels, memory_.departed);
    for (size_t i = 0; i < kLossCount; ++i)
      reasons_[i] = builder_.AddLabel("reason", kLosses[i].reason);
    ExpositionBuilder::Mark begin;
    builder_.SetMark(begin);
    if (!AddAll(processes, groups)) {
      builder_.RollBack(begin);
      AddByShares(processes, groups);
    }
    AddOthers(groups);
    memory_.labels.Sweep();
    return drops_;
  }

 private:
  void AddSegments() {
    const collector::SegmentCounts& segments = snapshot_.segments;
    const std::array<std::pair<std::string_view, uint64_t>, 4> states{
        {{"live", segments.live},
         {"starting", segments.starting},
         {"exited", segments.exited},
         {"unusable", segments.unusable}}};
    for (const auto& [state, count] : states) {
      builder_.Add(Metric::kSegments, kNoLabels, builder_.AddLabel("state", state),
                   static_cast<double>(count));
    }
    for (size_t i = 0; i < collector::kSegmentErrors.size(); ++i) {
      builder_.Add(Metric::kSegmentReadErrors, kNoLabels,
                   builder_.AddLabel("reason", collector::kSegmentErrors[i].name),
                   static_cast<double>(snapshot_.segment_errors[i]));
    }
    for (const collector::SegmentTrouble& trouble : snapshot_.segment_troubles) {
      const std::string uid = trouble.uid ? std::to_string(*trouble.uid) : "other";
      const std::string reason(NameOf(trouble.error));
      const auto labels = builder_.AddLabels({{"uid", uid}, {"reason", reason}});
      builder_.Add(Metric::kUserSegmentErrors, kNoLabels, labels,
                   static_cast<double>(trouble.count));
      // An error that is no state of a file or directory has no gauge: it passes with the read.
      if (trouble.error == collector::SegmentError::kChangedWhileRead) continue;
      builder_.Add(Metric::kUserSegmentsUnusable, kNoLabels, labels,
                   static_cast<double>(trouble.present));
    }
    for (size_t i = 0; i < collector::kUncomparedReasons.size(); ++i) {
      builder_.Add(Metric::kUncomparedOperations, kNoLabels,
                   builder_.AddLabel("reason", collector::kUncomparedReasons[i].name),
                   static_cast<double>(snapshot_.uncompared_operations[i]));
    }
    for (const collector::UncomparedCommunicators& user : snapshot_.uncompared_communicators) {
      const std::string uid = user.uid ? std::to_string(*user.uid) : "other";
      builder_.Add(Metric::kUserUncomparedCommunicators, kNoLabels, builder_.AddLabel("uid", uid),
                   static_cast<double>(user.count));
    }
    for (size_t i = 0; snapshot_.state_errors && i < collector::kStateErrors.size(); ++i) {
      builder_.Add(Metric::kStateErrors, kNoLabels,
                   builder_.AddLabel("reason", collector::kStateErrors[i].name),
                   static_cast<double>((*snapshot_.state_errors)[i]));
    }
    builder_.Add(Metric::kArrivalMatching, kNoLabels, kNoLabels,
                 static_cast<double>(snapshot_.arrival_matching_ns) / 1e9);
    builder_.Add(Metric::kSnapshotTimestamp, kNoLabels, kNoLabels,
                 static_cast<double>(snapshot_.taken_realtime_ns) / 1e9);
  }

  struct Process {
    SharedLabels labels;
    std::vector<const collector::ProcessSnapshot*> members;
    std::array<uint64_t, kLossCount> losses{};
    std::optional<collector::DerivedProcessCounts> derived = std::nullopt;
    bool is_alive = false;
    std::optional<bool> is_stopped = std::nullopt;
    int64_t since_ns = 0;
  };

  // Processes can have the same labels: the same pid in two containers without job labels, or a
  // dropped label. Their counts are summed. The sum is alive while one of them is, and stopped
  // while one of them is.
  std::vector<Process> ProcessesByLabels() {
    std::vector<Process> processes;
    std::unordered_map<const LabelSet*, size_t> index;  // equal sets are one object of the cache
    for (const collector::ProcessSnapshot& process : snapshot_.processes) {
      const SharedLabels& labels = memory_.labels.OfProcess(process);
      const auto [entry, is_new] = index.try_emplace(labels.get(), processes.size());
      if (is_new)
        processes.push_back(
            {.labels = labels, .members = {}, .since_ns = process.start_realtime_ns});
      Process& sum = processes[entry->second];
      sum.members.push_back(&process);
      for (size_t i = 0; i < kLossCount; ++i) sum.losses[i] += process.losses[i];
      AddKnown(sum.derived, process.derived);
      sum.is_alive |= process.is_alive;
      if (process.is_stopped)
        sum.is_stopped = sum.is_stopped.value_or(false) || *process.is_stopped;
      sum.since_ns = std::min(sum.since_ns, process.start_realtime_ns);
    }
    return processes;
  }

  void AddDeparted(Process& sum) {
    const DepartedProcesses* const departed = memory_.departed.ProcessesOf(sum.labels);
    if (departed == nullptr && sum.members.size() == 1) return;
    for (const collector::ProcessSnapshot* process : sum.members)
      memory_.departed.Remember(sum.labels, *process);
    if (departed == nullptr) return;
    for (size_t i = 0; i < kLossCount; ++i) sum.losses[i] += departed->losses[i];
    AddKnown(sum.derived, departed->derived);
    sum.since_ns = std::min(sum.since_ns, departed->start_realtime_ns);
  }

  size_t SamplesOf(const Process& process) const {
    size_t samples = builder_.Serves(Metric::kProcessAlive) +
                     (process.is_stopped && builder_.Serves(Metric::kProcessStopped));
    for (const LossTraits& loss : kLosses) samples += builder_.Serves(MetricOf(loss.kind));
    if (!process.derived) return samples;
    return samples +
           (process.derived->kernel_ns && builder_.Serves(Metric::kProcessKernelSeconds)) +
           (process.derived->point_to_point_operations &&
            builder_.Serves(Metric::kProcessPointToPoint));
  }

  void AddProcess(const Process& sum) {
    const LabelsId process = builder_.AddLabels(sum.labels);
    builder_.Add(Metric::kProcessAlive, process, kNoLabels, sum.is_alive ? 1 : 0);
    if (sum.is_stopped)
      builder_.Add(Metric::kProcessStopped, process, kNoLabels, *sum.is_stopped ? 1 : 0);
    builder_.CountSince(sum.since_ns);
    for (size_t i = 0; i < kLossCount; ++i) {
      builder_.Add(MetricOf(kLosses[i].kind), process, reasons_[i],
                   static_cast<double>(sum.losses[i]));
    }
    if (!sum.derived) return;
    builder_.CountSince(sum.derived->since_realtime_ns);
    if (const auto& kernel_ns = sum.derived->kernel_ns) {
      builder_.Add(Metric::kProcessKernelSeconds, process, kNoLabels,
                   static_cast<double>(*kernel_ns) / 1e9);
    }
    if (const auto& operations = sum.derived->point_to_point_operations) {
      builder_.Add(Metric::kProcessPointToPoint, process, kNoLabels,
                   static_cast<double>(*operations));
    }
  }

  // The user whose share the samples take. If dropped labels merge users, that is the first one.
  static uint64_t UserOf(const Process& process) { return process.members.front()->uid; }
  static uint64_t UserOf(const SeriesGroup& group) {
    const auto present = std::ranges::find(group.members, false, &GroupMember::has_departed);
    return present->process->uid;
  }

  // Adds everything, if it fits. Otherwise records how many samples each group has.
  bool AddAll(const std::vector<Process>& processes, const SeriesGroups& groups) {
    bool fits = true;
    for (const Process& process : processes) {
      fits = fits && builder_.samples() + SamplesOf(process) <= named_limit_;
      if (fits) AddProcess(process);
    }
    for (const SeriesGroup& group : groups.named()) {
      const size_t before = builder_.samples();
      const size_t refused =
          AddWithin(fits ? named_limit_ : 0, &CommunicatorSeries::AddNamed, group);
      fits = fits && refused == 0;
      group_samples_.push_back(refused == 0 ? builder_.samples() - before : refused);
    }
    return fits;
  }

  // The number of samples that each user may add: an equal part of what users with smaller needs
  // leave.
  std::map<uint64_t, size_t> Shares(const std::vector<Process>& processes,
                                    const SeriesGroups& groups) const {
    std::map<uint64_t, size_t> wanted;
    for (const Process& process : processes) wanted[UserOf(process)] += SamplesOf(process);
    for (size_t i = 0; i < group_samples_.size(); ++i)
      wanted[UserOf(groups.named()[i])] += group_samples_[i];
    std::vector<std::pair<size_t, uint64_t>> order;
    for (const auto& [uid, samples] : wanted) order.emplace_back(samples, uid);
    std::ranges::sort(order);
    size_t left = named_limit_ - std::min(named_limit_, builder_.samples());
    std::map<uint64_t, size_t> shares;
    for (size_t i = 0; i < order.size(); ++i) {
      const auto& [samples, uid] = order[i];
      const size_t share = left / (order.size() - i);
      shares[uid] = share;
      left -= std::min(share, samples);
    }
    return shares;
  }

  void AddByShares(const std::vector<Process>& processes, SeriesGroups& groups) {
    std::map<uint64_t, size_t> left = Shares(processes, groups);
    for (const Process& process : processes) {
      const size_t samples = SamplesOf(process);
      size_t& room = left[UserOf(process)];
      if (samples > room) {
        drops_.left_out += samples;
        continue;
      }
      room -= samples;
      AddProcess(process);
    }
    std::vector<size_t> folded;
    std::set<uint64_t> is_full;
    for (size_t i = 0; i < group_samples_.size(); ++i) {
      const SeriesGroup& group = groups.named()[i];
      const uint64_t uid = UserOf(group);
      if (is_full.contains(uid) || group_samples_[i] > left[uid]) {
        is_full.insert(uid);
        drops_.folded += group_samples_[i];
        folded.push_back(i);
        continue;
      }
      left[uid] -= group_samples_[i];
      communicators_.AddNamed(group);
    }
    groups.Fold(folded);
  }

  // Users with the fewest folded communicators come first, so that none is left out because of
  // another.
  void AddOthers(const SeriesGroups& groups) {
    std::map<uint64_t, size_t> members;
    std::vector<const SeriesGroup*> order;
    for (const SeriesGroup& other : groups.others()) {
      members[UserOf(other)] += other.members.size();
      order.push_back(&other);
    }
    std::ranges::stable_sort(order, {},
                             [&](const SeriesGroup* other) { return members[UserOf(*other)]; });
    for (const SeriesGroup* other : order) {
      drops_.left_out += AddWithin(series_limit_, &CommunicatorSeries::AddOther, *other);
    }
    for (const std::vector<SeriesGroup>* list : {&groups.named(), &groups.others()}) {
      for (const SeriesGroup& group : *list) {
        if (group.members.size() > 1) memory_.departed.Remember(group.labels, group.members);
      }
    }
  }

  // Adds a group if the samples then number at most `limit`; else adds nothing and returns how many
  // it has.
  size_t AddWithin(size_t limit, void (CommunicatorSeries::*add)(const SeriesGroup&),
                   const SeriesGroup& group) {
    builder_.SetMark(mark_);
    (communicators_.*add)(group);
    if (builder_.samples() <= limit) return 0;
    const size_t samples = builder_.samples() - mark_.samples;
    builder_.RollBack(mark_);
    return samples;
  }

  const collector::NodeSnapshot& snapshot_;
  const size_t series_limit_;
  const size_t named_limit_;
  SeriesMemory& memory_;
  ExpositionBuilder builder_;
  CommunicatorSeries communicators_;
  ExpositionBuilder::Mark mark_;
  std::array<LabelsId, kLossCount> reasons_{};
  std::vector<size_t> group_samples_;  // of SeriesGroups::named()
  SeriesDrops drops_;
};

}  // namespace

SeriesDrops AddSnapshotFamilies(std::shared_ptr<const collector::NodeSnapshot> snapshot,
                                size_t series_limit, SeriesMemory& memory, Exposition& exposition) {
  exposition.owners.push_back(snapshot);
  const SeriesDrops drops = SnapshotFamilies(*snapshot, series_limit, memory, exposition).Add();
  memory.departed.End(std::move(snapshot));
  return drops;
}

}  // namespace nccl_exporter::exporter
