// SPDX-License-Identifier: Apache-2.0
#include "exporter/series/communicator_series.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "exporter/series/communicator_gauges.h"
#include "exporter/series/group_sums.h"

namespace nccl_exporter::exporter {
namespace {

constexpr double kNsPerSecond = 1e9;

// A counter per size class of collectives, and those of sends and receives. The count is divided by
// the unit.
struct SizeCounter {
  Metric of_collectives, of_sends, of_receives;
  uint64_t collector::SizeClassSnapshot::*count;
  double unit = 1;
};
constexpr std::array kSizeCounters{
    SizeCounter{Metric::kCollectiveOperations, Metric::kSendOperations, Metric::kRecvOperations,
                &collector::SizeClassSnapshot::operations},
    SizeCounter{Metric::kCollectiveBytes, Metric::kSendBytes, Metric::kRecvBytes,
                &collector::SizeClassSnapshot::bytes},
    SizeCounter{Metric::kCollectiveTimedOperations, Metric::kSendTimedOperations,
                Metric::kRecvTimedOperations, &collector::SizeClassSnapshot::timed_operations},
    SizeCounter{Metric::kCollectiveBusySeconds, Metric::kSendBusySeconds, Metric::kRecvBusySeconds,
                &collector::SizeClassSnapshot::busy_ns, kNsPerSecond},
};

const FunctionGroup kSends{.members = {Function::kSend}, .labels = nullptr, .sizes = {}};
const FunctionGroup kReceives{.members = {Function::kRecv}, .labels = nullptr, .sizes = {}};
constexpr std::array kSendAndRecv{Function::kSend, Function::kRecv};

// Counts of the members together: those of the only one, or their sum in `sum`. Null: there are
// none.
const RankCounts* CountsOf(const SeriesGroup& group, std::optional<RankCounts>& sum) {
  if (group.Counted().size() == 1) return group.Counted().front().counts;
  for (const GroupMember& member : group.Counted()) {
    if (member.counts != nullptr) collector::AddKnown(sum, std::optional(*member.counts));
  }
  return sum ? &*sum : nullptr;
}

}  // namespace

CommunicatorSeries::CommunicatorSeries(ExpositionBuilder& builder, LabelCache& labels,
                                       const FunctionGroups& functions)
    : builder_(builder), labels_(labels), functions_(functions), network_(builder) {
  for (const FunctionGroup& one : functions.all) {
    const LabelsId id = builder.AddLabels(one.labels);
    for (const Function function : one.members)
      function_labels_[static_cast<size_t>(function)] = id;
  }
  for (const FunctionGroup& one : functions.collectives) {
    const LabelsId id = builder.AddLabels(one.labels);
    for (const Function function : one.members)
      collective_labels_[static_cast<size_t>(function)] = id;
    for (const SizeGroup& sizes : one.sizes)
      size_labels_.push_back(builder.AddLabels(sizes.labels));
  }
  for (size_t i = 0; functions.splits_durations && i < kSizeClassCount; ++i)
    size_alone_labels_[i] = builder.AddLabels(functions.size_alone[i]);
}

void CommunicatorSeries::AddNamed(const SeriesGroup& group, bool with_detail) {
  builder_.SetDetail(with_detail);
  splits_durations_ = functions_.splits_durations;
  const LabelsId labels = builder_.AddLabels(group.labels);
  builder_.CountSince(0);  // comparisons are the daemon's own
  AddArrivals(group, labels);
  builder_.CountSince(group.CreatedRealtimeNs());
  AddFunctions(group, labels);
  network_.Add(group, labels);
  std::optional<RankCounts> sum;
  if (const RankCounts* const counts = CountsOf(group, sum)) {
    AddKernelTime(group, *counts, labels);
    if (counts->steps) AddSteps(group, *counts->steps, labels);
    if (counts->node) AddNode(*counts->node, labels);
  }
  builder_.CountSince(group.CreatedRealtimeNs());
  const std::vector<const GroupMember*> in_use = group.InUse();
  if (const std::optional<double> ranks = RanksOf(group))
    builder_.Add(Metric::kCommunicatorRanks, labels, kNoLabels, *ranks);
  AddGauges(in_use, labels);
  AddInfo(in_use, labels);
  builder_.SetDetail(true);
}

void CommunicatorSeries::AddOther(const SeriesGroup& group) {
  splits_durations_ = false;  // all functions in all sizes would not fit kSeriesForOthers
  builder_.CountSince(group.CreatedRealtimeNs());
  const LabelsId labels = builder_.AddLabels(group.labels);
  AddFunctions(group, labels);
  network_.Add(group, labels);
  std::optional<RankCounts> sum;
  const RankCounts* const counts = CountsOf(group, sum);
  if (counts == nullptr) return;
  AddKernelTime(group, *counts, labels);
  if (!counts->node || !counts->node->network) return;
  network_.AddBusBytes(*counts->node->network, labels);
}

void CommunicatorSeries::AddFunctions(const SeriesGroup& group, LabelsId labels) {
  const auto operations = [](const collector::FunctionSnapshot& counts) {
    return SumOfSizes(counts, SizeRange{}, &collector::SizeClassSnapshot::operations);
  };
  if (const uint128_t sum = Sum(group, kSendAndRecv, operations); sum != 0)
    builder_.Add(Metric::kRankPointToPoint, labels, kNoLabels, static_cast<double>(sum));
  if (!builder_.ServesDetail()) return;
  AddPointToPoint(group, labels, kSends);
  AddPointToPoint(group, labels, kReceives);
  AddApiCalls(group, labels);
  const LabelsId* sizes = size_labels_.data();
  for (const FunctionGroup& functions : functions_.collectives) {
    if (WasUsed(group, functions)) AddCollective(group, labels, functions, sizes);
    sizes += functions.sizes.size();
  }
}

void CommunicatorSeries::AddApiCalls(const SeriesGroup& group, LabelsId labels) {
  for (const FunctionGroup& functions : functions_.all) {
    if (!WasUsed(group, functions)) continue;
    const auto calls = [](const collector::FunctionSnapshot& counts) { return counts.calls; };
    builder_.Add(Metric::kApiCalls, labels,
                 function_labels_[static_cast<size_t>(functions.members.front())],
                 static_cast<double>(Sum(group, functions.members, calls)));
  }
}

void CommunicatorSeries::AddCollective(const SeriesGroup& group, LabelsId labels,
                                       const FunctionGroup& functions, const LabelsId* sizes) {
  for (const SizeCounter& counter : kSizeCounters) {
    if (!builder_.Serves(counter.of_collectives)) continue;
    for (size_t i = 0; i < functions.sizes.size(); ++i) {
      const auto value = [&](const collector::FunctionSnapshot& counts) {
        return SumOfSizes(counts, functions.sizes[i].sizes, counter.count);
      };
      const auto sum = static_cast<double>(Sum(group, functions.members, value));
      builder_.Add(counter.of_collectives, labels, sizes[i], sum / counter.unit);
    }
  }
  AddDurations(Metric::kCollectiveDuration, group, labels, functions, sizes);
  if (!HasBusBytes(group, functions)) return;
  for (size_t i = 0; builder_.Serves(Metric::kCollectiveBusBytes) && i < functions.sizes.size();
       ++i) {
    builder_.Add(Metric::kCollectiveBusBytes, labels, sizes[i],
                 SumOfBusBytes(group, functions, functions.sizes[i].sizes));
  }
  AddHistogram(Metric::kCollectiveBusBandwidth, group, labels, functions);
}

void CommunicatorSeries::AddPointToPoint(const SeriesGroup& group, LabelsId labels,
                                         const FunctionGroup& functions) {
  if (!WasUsed(group, functions)) return;
  const bool is_send = functions.members.front() == Function::kSend;
  for (const SizeCounter& counter : kSizeCounters) {
    const Metric metric = is_send ? counter.of_sends : counter.of_receives;
    if (!builder_.Serves(metric)) continue;
    const auto value = [&](const collector::FunctionSnapshot& counts) {
      return SumOfSizes(counts, SizeRange{}, counter.count);
    };
    const auto sum = static_cast<double>(Sum(group, functions.members, value));
    builder_.Add(metric, labels, kNoLabels, sum / counter.unit);
  }
  AddDurations(is_send ? Metric::kSendDuration : Metric::kRecvDuration, group, labels, functions,
               size_alone_labels_.data());
}

// The daemon counts these itself. Members with the same labels are summed, departed ones included.
void CommunicatorSeries::AddArrivals(const SeriesGroup& group, LabelsId labels) {
  std::optional<collector::ArrivalCounts> sum;
  for (const GroupMember& member : group.Counted()) {
    const std::optional<collector::ArrivalCounts>& counts = member.communicator->arrivals;
    if (!counts) continue;
    if (!sum) sum.emplace();
    *sum += *counts;
  }
  if (!sum) return;
  builder_.Add(Metric::kArrivalLateness, labels, kNoLabels,
               static_cast<double>(sum->lateness_ns) / kNsPerSecond);
  builder_.Add(Metric::kLastArrivals, labels, kNoLabels, static_cast<double>(sum->last));
}

// Kernel seconds are absent where nothing is timed, or not any more: 0 would look like a rank that
// never waits.
void CommunicatorSeries::AddKernelTime(const SeriesGroup& group, const RankCounts& counts,
                                       LabelsId labels) {
  const auto [collectives, point_to_point] = TimedByTraffic(group);
  if (IsTimed(group) && collectives + point_to_point != 0) {
    const auto [in_collectives_ns, in_point_to_point_ns] = counts.kernel_ns;
    builder_.Add(Metric::kRankKernelSeconds, labels, kNoLabels,
                 static_cast<double>(in_collectives_ns + in_point_to_point_ns) / kNsPerSecond);
    if (point_to_point != 0)
      builder_.Add(Metric::kRankPointToPointKernelSeconds, labels, kNoLabels,
                   static_cast<double>(in_point_to_point_ns) / kNsPerSecond);
  }
  if (HasCollectives(group)) {
    builder_.Add(Metric::kRankTimedOperations, labels, kNoLabels, static_cast<double>(collectives));
  }
}

void CommunicatorSeries::AddSteps(const SeriesGroup& group, const StepCounts& steps,
                                  LabelsId labels) {
  builder_.CountSince(steps.since_realtime_ns);
  if (std::ranges::any_of(group.members, IsLowest))
    builder_.Add(Metric::kRankSteps, labels, kNoLabels, static_cast<double>(steps.steps));
  AddStepWaits(steps, labels);
}

// Where collectives or sizes are one series, it is that of the longest waits.
void CommunicatorSeries::AddStepWaits(const StepCounts& steps, LabelsId labels) {
  const LabelsId* sizes = size_labels_.data();
  for (const FunctionGroup& functions : functions_.collectives) {
    std::map<size_t, uint64_t> longest_ns;  // by index of sizes
    for (const auto& [kind, wait_ns] : steps.waits_ns) {
      if (std::ranges::find(functions.members, kind.function) == functions.members.end()) continue;
      uint64_t& longest = longest_ns[functions.SizeOf(kind.size_class)];
      longest = std::max(longest, wait_ns);
    }
    for (const auto& [size, wait_ns] : longest_ns)
      builder_.Add(Metric::kRankStepWait, labels, sizes[size],
                   static_cast<double>(wait_ns) / kNsPerSecond);
    sizes += functions.sizes.size();
  }
}

// If sizes or collectives are one series, there are no large ones: their bandwidths differ.
void CommunicatorSeries::AddNode(const NodeCounts& node, LabelsId labels) {
  builder_.CountSince(node.since_realtime_ns);
  if (node.progress)
    builder_.Add(Metric::kNodeProgress, labels, kNoLabels, static_cast<double>(*node.progress));
  if (node.compared)
    builder_.Add(Metric::kComparedOperations, labels, kNoLabels,
                 static_cast<double>(*node.compared));
  if (node.network) network_.AddBusBytes(*node.network, labels);
  if (node.large.empty()) return;
  const LabelsId* sizes = size_labels_.data();
  for (const FunctionGroup& functions : functions_.collectives) {
    if (functions.members.size() > 1 || functions.sizes.size() != kSizeClassCount) return;
    for (const auto& [kind, counts] : node.large) {
      if (kind.function != functions.members.front()) continue;
      const LabelsId size = sizes[kind.size_class];
      builder_.Add(Metric::kNodeLargeBusBytes, labels, size, static_cast<double>(counts.bus_bytes));
      builder_.Add(Metric::kNodeLargeBusySeconds, labels, size,
                   static_cast<double>(counts.busy_ns) / kNsPerSecond);
      builder_.Add(Metric::kNodeLargeTimedOperations, labels, size,
                   static_cast<double>(counts.timed_operations));
    }
    sizes += kSizeClassCount;
  }
}

void CommunicatorSeries::AddGauges(std::span<const GroupMember* const> in_use, LabelsId labels) {
  for (const CommunicatorGauge& gauge : CommunicatorGauges()) {
    if (!builder_.Serves(gauge.metric)) continue;
    if (const std::optional<double> value = ValueOf(gauge, in_use))
      builder_.Add(gauge.metric, labels, kNoLabels, *value);
  }
  AddOldest(Metric::kOldestInFlightStart, in_use, labels);
  AddStalled(QuietOf(in_use), labels);
}

void CommunicatorSeries::AddStalled(const std::vector<const GroupMember*>& quiet, LabelsId labels) {
  if (quiet.empty()) return;
  AddOldest(Metric::kStalledOldestInFlightStart, quiet, labels);
  const GroupMember& newest = **std::ranges::max_element(quiet, {}, [](const GroupMember* member) {
    return member->communicator->created_realtime_ns;
  });
  const CommunicatorLabelSets& sets = labels_.Of(*newest.process, *newest.communicator);
  if (sets.rank_names) {
    builder_.Add(Metric::kStalledCommunicatorRanks, labels, builder_.AddLabels(sets.rank_names),
                 static_cast<double>(newest.communicator->ranks));
  }
  std::set<const ProcessCounts*> processes;
  for (const GroupMember* member : quiet) {
    const collector::CommunicatorSnapshot& communicator = *member->communicator;
    const bool may_wait = !communicator.completion_is_known || !communicator.in_flight.empty();
    if (may_wait && member->process_counts != nullptr) processes.insert(member->process_counts);
  }
  double progress = 0;
  for (const ProcessCounts* process : processes) progress += static_cast<double>(process->progress);
  if (!processes.empty())
    builder_.Add(Metric::kStalledProcessProgress, labels, kNoLabels, progress);
}

void CommunicatorSeries::AddOldest(Metric metric, std::span<const GroupMember* const> members,
                                   LabelsId labels) {
  const collector::InFlightOperation* const oldest = OldestInFlight(members);
  if (oldest == nullptr) return;
  builder_.Add(metric, labels, function_labels_[static_cast<size_t>(oldest->function)],
               SecondsOfTime(oldest->start_realtime_ns));
}

void CommunicatorSeries::AddInfo(std::span<const GroupMember* const> in_use, LabelsId labels) {
  std::set<const LabelSet*> added;  // equal sets are one object of the cache
  for (const GroupMember* member : in_use) {
    const CommunicatorLabelSets& sets = labels_.Of(*member->process, *member->communicator);
    if (sets.communicator_info && added.insert(sets.communicator_info.get()).second) {
      builder_.Add(Metric::kCommunicatorInfo, labels, builder_.AddLabels(sets.communicator_info),
                   1);
    }
    if (sets.rank_info && added.insert(sets.rank_info.get()).second) {
      builder_.Add(Metric::kRankInfo, labels, builder_.AddLabels(sets.rank_info), 1);
    }
  }
}

void CommunicatorSeries::AddHistogram(Metric metric, const SeriesGroup& group, LabelsId labels,
                                      const FunctionGroup& functions) {
  if (!builder_.Serves(metric)) return;
  const collector::CommunicatorSnapshot& first = *group.Counted().front().communicator;
  std::span<const uint64_t> counts = HistogramCounts(metric, first, functions.members.front());
  // Sums change with the next scrape.
  if (!group.sums.empty() || functions.members.size() > 1) {
    std::vector<uint64_t> sum(counts.size());
    for (const GroupMember& member : group.Counted()) {
      for (const Function function : functions.members) {
        std::ranges::transform(sum, HistogramCounts(metric, *member.communicator, function),
                               sum.begin(), std::plus<>());
      }
    }
    counts = builder_.Keep(std::move(sum));
  }
  builder_.AddHistogram(metric, labels, CollectiveLabelsOf(functions),
                        HistogramSum(metric, group, functions), counts);
}

void CommunicatorSeries::AddDurations(Metric metric, const SeriesGroup& group, LabelsId labels,
                                      const FunctionGroup& functions, const LabelsId* sizes) {
  if (!splits_durations_) return AddHistogram(metric, group, labels, functions);
  if (!builder_.Serves(metric)) return;
  collector::SizedDurations rest;
  std::array<collector::SizedDurations, kSizeClassCount> by_size;
  for (const GroupMember& member : group.Counted()) {
    for (const Function function : functions.members) {
      const collector::FunctionSnapshot& counts =
          member.communicator->functions[static_cast<size_t>(function)];
      rest += {.counts = {counts.duration.begin(), counts.duration.end()},
               .busy_ns = SumOfSizes(counts, SizeRange{}, &collector::SizeClassSnapshot::busy_ns)};
      for (size_t i = 0; i < by_size.size(); ++i) by_size[i] += counts.duration_by_size[i];
    }
  }
  const auto add = [&](LabelsId size, collector::SizedDurations& durations) {
    builder_.AddHistogram(metric, labels, size,
                          static_cast<double>(durations.busy_ns) / kNsPerSecond,
                          builder_.Keep(std::move(durations.counts)));
  };
  for (size_t i = 0; i < by_size.size(); ++i) {
    if (by_size[i].counts.empty()) continue;
    rest -= by_size[i];
    add(sizes[i], by_size[i]);
  }
  if (std::ranges::any_of(rest.counts, [](uint64_t count) { return count != 0; }))
    add(CollectiveLabelsOf(functions), rest);
}

LabelsId CommunicatorSeries::CollectiveLabelsOf(const FunctionGroup& functions) const {
  return functions.labels == nullptr
             ? kNoLabels
             : collective_labels_[static_cast<size_t>(functions.members.front())];
}

}  // namespace nccl_exporter::exporter
