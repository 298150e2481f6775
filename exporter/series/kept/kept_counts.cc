// SPDX-License-Identifier: Apache-2.0
#include "exporter/series/kept/kept_counts.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

namespace nccl_exporter::exporter {
namespace {

// Counts of a member before it is met, if it is new: none.
const collector::CommunicatorSnapshot kNothing;
const GroupMember kNew{.communicator = &kNothing};

// The counts that a sum has of each type.
constexpr auto FieldsOf(const collector::SizeClassSnapshot&) {
  using Size = collector::SizeClassSnapshot;
  return std::tuple(&Size::operations, &Size::bytes, &Size::timed_operations, &Size::timed_bytes,
                    &Size::busy_ns);
}
constexpr auto FieldsOf(const collector::FunctionSnapshot&) {
  using Counts = collector::FunctionSnapshot;
  return std::tuple(&Counts::calls, &Counts::completed, &Counts::sizes, &Counts::bandwidth_sum_kib);
}
constexpr auto FieldsOf(const collector::ArrivalCounts&) {
  using Counts = collector::ArrivalCounts;
  return std::tuple(&Counts::compared, &Counts::last, &Counts::lateness_ns);
}
constexpr auto FieldsOf(const collector::NetworkDirectionCounts&) {
  using Counts = collector::NetworkDirectionCounts;
  return std::tuple(&Counts::wait_ns, &Counts::bytes, &Counts::operations);
}
constexpr auto FieldsOf(const collector::NetworkCounts&) {
  return std::tuple(&collector::NetworkCounts::directions);
}
constexpr auto FieldsOf(const collector::NetworkBusBytes&) {
  return std::tuple(&collector::NetworkBusBytes::all, &collector::NetworkBusBytes::timed);
}
constexpr auto FieldsOf(const LargeCounts&) {
  return std::tuple(&LargeCounts::timed_operations, &LargeCounts::bus_bytes, &LargeCounts::busy_ns);
}
constexpr auto FieldsOf(const StepCounts&) {
  return std::tuple(&StepCounts::steps, &StepCounts::waits_ns);
}
constexpr auto FieldsOf(const NodeCounts&) {
  return std::tuple(&NodeCounts::progress, &NodeCounts::compared, &NodeCounts::large,
                    &NodeCounts::network);
}
constexpr auto FieldsOf(const RankCounts&) {
  return std::tuple(&RankCounts::kernel_ns, &RankCounts::steps, &RankCounts::node);
}
constexpr auto FieldsOf(const ProcessCounts&) {
  return std::tuple(&ProcessCounts::kernel_ns, &ProcessCounts::point_to_point_operations);
}
constexpr auto FieldsOf(const ProcessSum&) {
  return std::tuple(&ProcessSum::losses, &ProcessSum::chained, &ProcessSum::counts);
}

// Each Add() adds to `sum` what `now` has more than `before`. A count that decreases, as only a
// damaged segment has, counts as unchanged, and a sum that is full stays so. Members of a class, so
// that each finds all others.
struct Increase {
  // Whether any operation began or ended: histograms change with these counts only.
  static bool IsMore(const collector::FunctionSnapshot& now,
                     const collector::FunctionSnapshot& before) {
    return now.calls != before.calls || now.completed != before.completed ||
           now.sizes != before.sizes;
  }
  static void Add(uint64_t now, uint64_t before, uint64_t& sum) {
    if (now > before) sum += std::min(now - before, ~uint64_t{0} - sum);
  }
  // An empty one is zeros.
  static void AddHistogram(std::span<const uint64_t> now, std::span<const uint64_t> before,
                           std::span<uint64_t> sum) {
    for (size_t i = 0; i < now.size(); ++i) {
      Add(now[i], before.empty() ? 0 : before[i], sum[i]);
      sum[i] = std::min(sum[i], collector::kMostHistogramCount);
    }
  }
  template <typename Count, size_t kSize>
  static void Add(const std::array<Count, kSize>& now, const std::array<Count, kSize>& before,
                  std::array<Count, kSize>& sum) {
    for (size_t i = 0; i < kSize; ++i) Add(now[i], before[i], sum[i]);
  }
  template <typename Key, typename Count>
  static void Add(const std::map<Key, Count>& now, const std::map<Key, Count>& before,
                  std::map<Key, Count>& sum) {
    for (const auto& [key, count] : now) {
      const auto old = before.find(key);
      Add(count, old == before.end() ? Count{} : old->second, sum[key]);
    }
  }
  // Where it is known now.
  template <typename Count>
  static void Add(const std::optional<Count>& now, const std::optional<Count>& before,
                  std::optional<Count>& sum) {
    if (!now) return;
    if (!sum) {
      sum.emplace();
      if constexpr (HasStart<Count>) sum->since_realtime_ns = now->since_realtime_ns;
    }
    static const Count kZeros{};
    Add(*now, before ? *before : kZeros, *sum);
  }
  static void Add(const collector::SizedDurations& now, const collector::SizedDurations& before,
                  collector::SizedDurations& sum) {
    sum.counts.resize(std::max(sum.counts.size(), now.counts.size()));
    AddHistogram(now.counts, before.counts, sum.counts);
    Add(now.busy_ns, before.busy_ns, sum.busy_ns);
  }
  static void Add(const collector::CommunicatorSnapshot& now,
                  const collector::CommunicatorSnapshot& before, Histograms histograms,
                  collector::CommunicatorSnapshot& sum) {
    for (size_t i = 0; i < now.functions.size(); ++i) {
      if (!now.functions.IsInUse(i)) continue;
      const collector::FunctionSnapshot &is = now.functions[i], &was = before.functions[i];
      collector::FunctionSnapshot& function = sum.functions.Change(i);
      if (!IsMore(is, was)) continue;
      Add(is, was, function);
      if (histograms == Histograms::kNone) continue;
      AddHistogram(is.duration, was.duration, function.duration);
      AddHistogram(is.bandwidth, was.bandwidth, function.bandwidth);
      if (histograms == Histograms::kBySize)
        Add(is.duration_by_size, was.duration_by_size, function.duration_by_size);
    }
    Add(now.arrivals, before.arrivals, sum.arrivals);
    Add(now.network, before.network, sum.network);
    if (now.timing_source != TimingSource::kNone) sum.timing_source = now.timing_source;
  }
  template <typename Counts>
  requires requires(const Counts& counts) { FieldsOf(counts); }
  static void Add(const Counts& now, const Counts& before, Counts& sum) {
    std::apply([&](auto... field) { (Add(now.*field, before.*field, sum.*field), ...); },
               FieldsOf(now));
    if constexpr (HasStart<Counts>)
      sum.since_realtime_ns = std::min(sum.since_realtime_ns, now.since_realtime_ns);
  }

 private:
  template <typename Counts>
  static constexpr bool HasStart = requires(Counts counts) {
    counts.since_realtime_ns;
  };
};

}  // namespace

KeptCounts::CommunicatorKey KeptCounts::KeyOf(const GroupMember& member) {
  const collector::CommunicatorSnapshot& communicator = *member.communicator;
  return {member.process->file, communicator.slot, communicator.generation, communicator.id,
          communicator.rank};
}

void KeptCounts::Begin(std::shared_ptr<const Book> book) {
  ++scrape_;
  before_ = std::exchange(latest_, std::move(book));
  communicators_before_.clear();
  if (before_ == nullptr) return;
  for (const collector::ProcessSnapshot& process : before_->node->processes) {
    for (const collector::CommunicatorSnapshot& communicator : process.communicators) {
      const GroupMember member{.process = &process,
                               .communicator = &communicator,
                               .counts = before_->Of(process, communicator)};
      communicators_before_[KeyOf(member)] = member;
    }
  }
}

void KeptCounts::CountShared(SeriesGroup& group) {
  const GroupMember& first = group.members.front();
  group.counted = first.communicator;
  group.counts = first.counts;
  if (group.members.size() == 1 && !sums_.contains(group.labels)) return;
  Sum& sum = SumOf(group, first.communicator->created_realtime_ns);
  sum.counted_in = scrape_;
  std::set<CommunicatorKey> members;
  for (const GroupMember& member : group.members) {
    const CommunicatorKey key = KeyOf(member);
    const auto before = sum.members.insert(key).second ? communicators_before_.end()
                                                       : communicators_before_.find(key);
    Add(member, before == communicators_before_.end() ? kNew : before->second, histograms_, sum);
    int64_t& created = sum.communicator.created_realtime_ns;
    created = std::min(created, member.communicator->created_realtime_ns);
    members.insert(key);
  }
  sum.members = std::move(members);
  Fill(sum, group);
}

SeriesGroup KeptCounts::CountOther(const SeriesGroup& other) {
  Sum& sum = SumOf(other, latest_->node->taken_realtime_ns);
  const Histograms histograms = std::min(histograms_, Histograms::kOfAllSizes);
  for (const GroupMember& member : other.members)
    Add(member, BeforeFolded(member), histograms, sum);
  SeriesGroup group{.labels = other.labels, .members = {}};
  Fill(sum, group);
  return group;
}

KeptCounts::Sum& KeptCounts::SumOf(const SeriesGroup& group, int64_t created_realtime_ns) {
  const auto [place, is_new] = sums_.try_emplace(group.labels);
  Sum& sum = place->second;
  if (is_new) {
    sum.uid = group.members.front().process->uid;
    sum.communicator.created_realtime_ns = created_realtime_ns;
  }
  return sum;
}

void KeptCounts::Fill(const Sum& sum, SeriesGroup& group) {
  group.counted = &sum.communicator;
  group.counts = sum.counts ? &*sum.counts : nullptr;
  group.timed_by_ranks = &sum.timed_by_ranks;
}

GroupMember KeptCounts::BeforeFolded(const GroupMember& member) const {
  const auto found = communicators_before_.find(KeyOf(member));
  if (found != communicators_before_.end()) return found->second;
  const int64_t created_ns = member.communicator->is_overflow
                                 ? member.process->start_realtime_ns
                                 : member.communicator->created_realtime_ns;
  const bool is_new =
      before_ != nullptr && created_ns >= before_->node->taken_realtime_ns - kLatestSightNs;
  return is_new ? kNew : member;
}

void KeptCounts::Add(const GroupMember& member, const GroupMember& before, Histograms histograms,
                     Sum& sum) {
  const collector::CommunicatorSnapshot& now = *member.communicator;
  Increase::Add(now, *before.communicator, histograms, sum.communicator);
  TimedBytes& timed = TimedFor(now.ranks, sum);
  for (size_t i = 0; i < kFunctionCount; ++i) {
    const auto &is = now.functions[i].sizes, &was = before.communicator->functions[i].sizes;
    for (size_t size = 0; now.functions.IsInUse(i) && size < kSizeClassCount; ++size)
      Increase::Add(is[size].timed_bytes, was[size].timed_bytes, timed[i][size]);
  }
  if (member.counts == nullptr) return;
  if (!sum.counts) sum.counts.emplace();
  static const RankCounts kZeros{};
  Increase::Add(*member.counts, before.counts == nullptr ? kZeros : *before.counts, *sum.counts);
  if (member.counts->node) sum.counts->node->is_lowest |= member.counts->node->is_lowest;
}

TimedBytes& KeptCounts::TimedFor(uint64_t ranks, Sum& sum) {
  TimedByRanks& all = sum.timed_by_ranks;
  const auto place = all.lower_bound(ranks);
  if (place != all.end() && place->first == ranks) return place->second;
  size_t& further = further_[sum.uid];
  if (all.empty() || further < kMostFurtherRanks) {
    if (!all.empty()) ++further;
    return all[ranks];
  }
  if (place != all.end()) return place->second;
  auto highest = all.extract(std::prev(place));
  highest.key() = ranks;
  return all.insert(std::move(highest)).position->second;
}

ProcessSum KeptCounts::CountShared(const SharedLabels& labels,
                                   std::span<const collector::ProcessSnapshot* const> members) {
  const auto counts_of = [this](const collector::ProcessSnapshot& process) {
    const ProcessCounts* const counts = latest_->Of(process);
    return ProcessSum{.losses = process.losses,
                      .chained = {process.chained_callbacks, process.chained_ns},
                      .counts = counts ? std::optional(*counts) : std::nullopt,
                      .since_realtime_ns = process.start_realtime_ns};
  };
  if (members.size() == 1 && !process_sums_.contains(labels)) return counts_of(*members.front());
  const auto [place, is_new] = process_sums_.try_emplace(labels);
  auto& [sum, members_kept, counted_in] = place->second;
  counted_in = scrape_;
  if (is_new) sum.since_realtime_ns = members.front()->start_realtime_ns;
  std::set<ProcessKey> keys;
  for (const collector::ProcessSnapshot* process : members) {
    const ProcessKey key(process->file, process->start_realtime_ns);
    const ProcessSum now = counts_of(*process);
    ProcessSum& before = members_kept[key];
    Increase::Add(now, std::exchange(before, now), sum);
    keys.insert(key);
  }
  std::erase_if(members_kept, [&](const auto& member) { return !keys.contains(member.first); });
  return sum;
}

void KeptCounts::End(const std::set<SharedLabels>& others) {
  std::erase_if(sums_, [&](const auto& item) {
    return item.second.counted_in != scrape_ && !others.contains(item.first);
  });
  std::erase_if(process_sums_, [&](const auto& item) { return item.second.counted_in != scrape_; });
  further_.clear();
  for (const auto& [labels, sum] : sums_) further_[sum.uid] += sum.timed_by_ranks.size() - 1;
  before_.reset();
  communicators_before_.clear();
  if (sums_.empty()) latest_.reset();
}

}  // namespace nccl_exporter::exporter
