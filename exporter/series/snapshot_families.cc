// SPDX-License-Identifier: Apache-2.0
#include "exporter/series/snapshot_families.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "exporter/ledger/fair_shares.h"
#include "exporter/series/communicator_series.h"
#include "exporter/series/exposition_builder.h"
#include "exporter/series/process_series.h"
#include "exporter/series/series_group.h"

namespace nccl_exporter::exporter {
namespace {

// That come and go while a communicator is served. Each is one series at most.
constexpr std::array kPassingFamilies{
    Metric::kStalledCommunicatorRanks,   Metric::kStalledProgress,
    Metric::kStalledProcessProgress,     Metric::kStalledStartedSequence,
    Metric::kStalledCompletedSequence,   Metric::kStalledInFlight,
    Metric::kStalledOldestInFlightStart, Metric::kOldestInFlightStart};

class SnapshotFamilies {
 public:
  SnapshotFamilies(const Book& book, size_t series_limit, SeriesMemory& memory,
                   ScrapeMemory& scrape_memory, Exposition& exposition)
      : book_(book),
        snapshot_(*book.node),
        series_limit_(series_limit),
        named_limit_(series_limit - std::min(series_limit, kSeriesForOthers)),
        memory_(memory),
        scrape_memory_(scrape_memory),
        builder_(exposition),
        process_series_(builder_),
        communicators_(builder_, memory.labels, memory.functions) {}

  // Nearly all nodes fit, so everything is added at once. Only if it does not fit, it is removed
  // and added by levels.
  SeriesDrops Add() {
    AddSegments();
    memory_.labels.SetTime(snapshot_.taken_realtime_ns);
    ReplacedProcesses replaced;
    const std::vector<ProcessGroup> processes =
        ProcessGroups(book_, memory_.labels, scrape_memory_.kept, replaced);
    SeriesGroups groups(book_, replaced, memory_.labels, scrape_memory_.kept);
    for (const GroupMember& member : groups.unbudgeted()) {
      drops_.Add(member.process->uid, SeriesLoss::kNew, 1);
      folded_of_[member.process] += member.IsInUse();
    }
    ExpositionBuilder::Mark begin;
    builder_.SetMark(begin);
    if (!AddAll(processes, groups)) {
      builder_.RollBack(begin);
      AddByLevels(processes, groups);
    }
    process_series_.AddUnserved(processes, folded_of_, series_limit_);
    AddOthers(groups);
    EndMemory();
    memory_.labels.Sweep();
    return drops_;
  }

 private:
  // A series whose only label is this one.
  void AddRow(Metric metric, std::string_view label, std::string_view value, uint64_t count) {
    if (builder_.Serves(metric))
      builder_.Add(metric, kNoLabels, builder_.AddLabel(label, value), static_cast<double>(count));
  }

  void AddSegments() {
    AddRow(Metric::kSegments, "state", "live", snapshot_.segments.live);
    AddRow(Metric::kSegments, "state", "starting", snapshot_.segments.starting);
    AddRow(Metric::kSegments, "state", "exited", snapshot_.segments.exited);
    AddRow(Metric::kSegments, "state", "unusable", snapshot_.segments.unusable);
    for (size_t i = 0; i < collector::kSegmentErrors.size(); ++i)
      AddRow(Metric::kSegmentReadErrors, "reason", collector::kSegmentErrors[i].name,
             snapshot_.segment_errors[i]);
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
    AddUnread();
    for (size_t i = 0; i < collector::kUncomparedReasons.size(); ++i)
      AddRow(Metric::kUncomparedOperations, "reason", collector::kUncomparedReasons[i].name,
             snapshot_.uncompared_operations[i]);
    for (const collector::UncomparedCommunicators& user : snapshot_.uncompared_communicators)
      AddRow(Metric::kUserUncomparedCommunicators, "uid",
             user.uid ? std::to_string(*user.uid) : "other", user.count);
    builder_.Add(Metric::kArrivalMatching, kNoLabels, kNoLabels,
                 static_cast<double>(snapshot_.arrival_matching_ns) / 1e9);
    builder_.Add(Metric::kSnapshotTimestamp, kNoLabels, kNoLabels,
                 static_cast<double>(snapshot_.taken_realtime_ns) / 1e9);
  }

  // Communicators that the collector had no room for.
  void AddUnread() {
    uint64_t in_use = 0, finalized = 0, ended = 0;
    for (const collector::ProcessSnapshot& process : snapshot_.processes) {
      (process.is_alive ? in_use : ended) += process.unread_in_use;
      (process.is_alive ? finalized : ended) += process.unread_finalized;
    }
    AddRow(Metric::kUnreadCommunicators, "state", "in_use", in_use);
    AddRow(Metric::kUnreadCommunicators, "state", "finalized", finalized);
    AddRow(Metric::kUnreadCommunicators, "state", "ended", ended);
  }

  // The user whose share the samples take. If dropped labels merge users, that is the first one.
  static uint64_t UserOf(const SeriesGroup& group) { return group.members.front().process->uid; }

  using Samples = ExpositionBuilder::Samples;

  // Samples of a process or a communicator, which count against the limit.
  struct Need {
    uint64_t uid = 0;
    Samples samples;
    Samples expected = {};  // that the next scrape may have in addition
    DetailLevel had = DetailLevel::kAll;

    // Samples that a level adds, with those of the next scrape.
    size_t Of(DetailLevel level) const {
      return level == DetailLevel::kAlerts ? samples.alerts + expected.alerts
                                           : samples.detail + expected.detail;
    }
  };

  Need NeedSince(const ExpositionBuilder::Mark& mark, const SeriesGroup& group) const {
    Need need{.uid = UserOf(group), .samples = builder_.SamplesSince(mark)};
    const size_t label_samples = SamplesOfLabels(group.labels->text().size());
    for (const Metric metric : kPassingFamilies) {
      if (builder_.Serves(metric) && !builder_.HasSince(mark, metric))
        (IsAlertSeries(metric) ? need.expected.alerts : need.expected.detail) += label_samples;
    }
    return need;
  }

  // Adds everything, if it fits. Otherwise records what each process and group needs.
  bool AddAll(const std::vector<ProcessGroup>& processes, const SeriesGroups& groups) {
    const size_t reserve = scrape_memory_.reduced.empty() ? 0 : named_limit_ / kReserveDivisor;
    const size_t limit = named_limit_ - reserve;
    bool fits = true;
    // Series of kProcessUnserved, at most.
    auto expected = static_cast<size_t>(
        std::ranges::count_if(processes, [](const auto& each) { return each.unread != 0; }));
    const auto keep_if_fits = [&] {
      expected += needs_.back().expected.All();
      fits = fits && builder_.samples() + expected <= limit;
      if (!fits) builder_.RollBack(mark_);
    };
    for (const ProcessGroup& process : processes) {
      builder_.SetMark(mark_);
      process_series_.AddAlerts(process);
      process_series_.AddDetail(process);
      needs_.push_back({.uid = process.uid(), .samples = builder_.SamplesSince(mark_)});
      keep_if_fits();
    }
    for (const SeriesGroup& group : groups.named()) {
      builder_.SetMark(mark_);
      communicators_.AddNamed(group, true);
      needs_.push_back(NeedSince(mark_, group));
      keep_if_fits();
    }
    if (fits) scrape_memory_.reduced.clear();
    return fits;
  }

  void AddByLevels(const std::vector<ProcessGroup>& processes, SeriesGroups& groups) {
    SetOrder(processes.size(), groups);
    levels_.assign(needs_.size(), DetailLevel::kFolded);
    // Each process may have a series of kProcessUnserved.
    for (size_t i = 0; i < processes.size(); ++i) ++needs_[i].expected.alerts;
    const size_t room = named_limit_ - std::min(named_limit_, builder_.samples());
    std::map<uint64_t, size_t> needs;
    for (const Need& need : needs_)
      needs[need.uid] += need.Of(DetailLevel::kAlerts) + need.Of(DetailLevel::kAll);
    std::map<uint64_t, size_t> left = EqualParts(needs, room);
    Raise(DetailLevel::kAlerts, left);
    Raise(DetailLevel::kAll, left);
    for (size_t i = 0; i < processes.size(); ++i) {
      if (levels_[i] != DetailLevel::kFolded) process_series_.AddAlerts(processes[i]);
      if (levels_[i] == DetailLevel::kAll) process_series_.AddDetail(processes[i]);
      CountLosses(i, SeriesLoss::kLeftOut);
    }
    AddToLevels(processes.size(), groups);
  }

  // 0: in use, 1: of processes that have ended without finalizing it, 2: finalized.
  static int UseOf(const SeriesGroup& group) {
    int use = 2;
    for (const GroupMember& member : group.members) {
      if (member.communicator->is_closed) continue;
      use = std::min(use, member.process->is_alive ? 0 : 1);
    }
    return use;
  }

  // Processes first. A slot of a segment may be used again, so the snapshot's order is not that of
  // age.
  void SetOrder(size_t processes, const SeriesGroups& groups) {
    order_.resize(needs_.size());
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::stable_sort(order_.begin() + static_cast<ptrdiff_t>(processes), order_.end(),
                     [&](size_t one, size_t other) {
                       const auto rank = [&](size_t i) {
                         const SeriesGroup& group = groups.named()[i - processes];
                         return std::pair(UseOf(group), group.counted->created_realtime_ns);
                       };
                       return rank(one) < rank(other);
                     });
    for (size_t i = processes; i < needs_.size(); ++i) {
      const auto reduced = scrape_memory_.reduced.find(groups.named()[i - processes].labels);
      if (reduced != scrape_memory_.reduced.end()) needs_[i].had = reduced->second;
    }
  }

  // Raises those that have the level before to this one, in their order, as far as what is left of
  // their users' shares goes.
  void Raise(DetailLevel level, std::map<uint64_t, size_t>& left) {
    const std::map<uint64_t, size_t> shares = left;
    for (const size_t i : order_) {
      if (static_cast<size_t>(levels_[i]) + 1 != static_cast<size_t>(level)) continue;
      const uint64_t uid = needs_[i].uid;
      const size_t samples = needs_[i].Of(level);
      const size_t reserve = needs_[i].had < level ? shares.at(uid) / kReserveDivisor : 0;
      if (samples != 0 && samples + reserve > left[uid]) continue;
      left[uid] -= samples;
      levels_[i] = level;
    }
  }

  // The needs of `groups` are behind those of the processes.
  void AddToLevels(size_t processes, SeriesGroups& groups) {
    std::map<SharedLabels, DetailLevel> reduced;
    std::vector<size_t> folded;
    for (size_t i = 0; i < groups.named().size(); ++i) {
      const SeriesGroup& group = groups.named()[i];
      const DetailLevel level = levels_[processes + i];
      if (level < DetailLevel::kAll) reduced[group.labels] = level;
      CountLosses(processes + i, SeriesLoss::kFolded);
      if (level == DetailLevel::kFolded) {
        folded.push_back(i);
        for (const GroupMember& member : group.members)
          folded_of_[member.process] += member.IsInUse();
      } else {
        communicators_.AddNamed(group, level == DetailLevel::kAll);
      }
    }
    scrape_memory_.reduced = std::move(reduced);
    groups.Fold(folded);
  }

  // `whole`: what it is if there are not even alert series.
  void CountLosses(size_t i, SeriesLoss whole) {
    const Need& need = needs_[i];
    if (levels_[i] == DetailLevel::kFolded) drops_.Add(need.uid, whole, need.samples.All());
    if (levels_[i] == DetailLevel::kAlerts)
      drops_.Add(need.uid, SeriesLoss::kDetail, need.samples.detail);
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
      builder_.SetMark(mark_);
      communicators_.AddOther(scrape_memory_.kept.CountOther(*other));
      if (builder_.samples() <= series_limit_) continue;
      drops_.Add(UserOf(*other), SeriesLoss::kLeftOut, builder_.SamplesSince(mark_).All());
      builder_.RollBack(mark_);
    }
  }

  void EndMemory() {
    std::set<SharedLabels> jobs;
    for (const collector::ProcessSnapshot& process : snapshot_.processes)
      if (const SharedLabels& labels = memory_.labels.OfOthers(process)) jobs.insert(labels);
    scrape_memory_.kept.End(jobs);
  }

  const Book& book_;
  const collector::NodeSnapshot& snapshot_;
  const size_t series_limit_;
  const size_t named_limit_;
  SeriesMemory& memory_;
  ScrapeMemory& scrape_memory_;
  ExpositionBuilder builder_;
  ProcessSeries process_series_;
  CommunicatorSeries communicators_;
  ExpositionBuilder::Mark mark_;
  // Needs of the processes, then of SeriesGroups::named(), in their order.
  std::vector<Need> needs_;
  std::vector<DetailLevel> levels_;
  std::vector<size_t> order_;  // indices, those that matter most first
  UnservedCommunicators folded_of_;
  SeriesDrops drops_;
};

}  // namespace

SeriesDrops AddSnapshotFamilies(std::shared_ptr<const Book> book, size_t series_limit,
                                SeriesMemory& memory, Exposition& exposition, Collect collect) {
  exposition.owners.push_back(book);
  ScrapeMemory& scrape_memory = collect == Collect::kAlerts ? memory.alerts : memory.whole;
  scrape_memory.kept.Begin(book);
  return SnapshotFamilies(*book, series_limit, memory, scrape_memory, exposition).Add();
}

}  // namespace nccl_exporter::exporter
