// SPDX-License-Identifier: Apache-2.0
#include "exporter/series/communicator_series.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "exporter/series/group_values.h"

namespace nccl_exporter::exporter {
namespace {

constexpr double kNsPerSecond = 1e9, kBytesPerKib = 1024;

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

}  // namespace

CommunicatorSeries::CommunicatorSeries(ExpositionBuilder& builder, LabelCache& labels,
                                       const FunctionLabels& functions)
    : builder_(builder), labels_(labels), functions_(functions) {
  for (size_t i = 0; i < kFunctionCount; ++i)
    function_labels_[i] = builder.AddLabels(functions.calls[i]);
  for (const CollectiveLabels& one : functions.collectives) {
    Collective& collective =
        collectives_.emplace_back(Collective{one, builder.AddLabels(one.labels), {}});
    for (const SizeGroup& sizes : one.sizes)
      collective.sizes.push_back(builder.AddLabels(sizes.labels));
  }
  for (size_t i = 0; i < kNetworkDirectionCount; ++i) {
    const std::string direction(kNetworkDirections[i].name);
    direction_labels_[i] = builder.AddLabel("direction", direction);
    for (size_t state = 0; state < kNetworkStateCount; ++state) {
      state_labels_[i][state] = builder.AddLabels(
          {{"direction", direction}, {"state", std::string(kNetworkStates[state].name)}});
    }
  }
  for (size_t i = 0; functions.splits_durations && i < kSizeClassCount; ++i)
    size_alone_labels_[i] = builder.AddLabels(functions.size_alone[i]);
}

void CommunicatorSeries::Begin(const SeriesGroup& group) {
  group_ = &group;
  group_labels_ = builder_.AddLabels(group.labels);
}

void CommunicatorSeries::AddNamed(const SeriesGroup& group, bool with_detail) {
  builder_.SetDetail(with_detail);
  splits_durations_ = functions_.splits_durations;
  Begin(group);
  builder_.CountSince(0);  // comparisons are the daemon's own
  AddArrivals();
  builder_.CountSince(group.counted->created_realtime_ns);
  AddFunctions();
  AddNetwork();
  if (const RankCounts* const counts = group.counts) {
    AddKernelTime(*counts);
    if (counts->steps) AddSteps(*counts->steps);
    if (counts->node) AddNode(*counts->node);
  }
  builder_.CountSince(group.counted->created_realtime_ns);
  const std::vector<const GroupMember*> in_use = group.InUse();
  if (const std::optional<double> ranks = RanksOf(group)) Add(Metric::kCommunicatorRanks, *ranks);
  AddGauges(in_use);
  AddInfo(in_use);
  builder_.SetDetail(true);
}

void CommunicatorSeries::AddOther(const SeriesGroup& group) {
  splits_durations_ = false;  // all functions in all sizes would not fit kSeriesForOthers
  Begin(group);
  builder_.CountSince(group.counted->created_realtime_ns);
  AddFunctions();
  AddNetwork();
  if (group.counts == nullptr) return;
  AddKernelTime(*group.counts);
  const std::optional<NodeCounts>& node = group.counts->node;
  if (node && node->network) AddNetworkBusBytes(*node->network);
}

void CommunicatorSeries::AddFunctions() {
  const auto [collectives, point_to_point] =
      SumByTraffic(*group_, &collector::SizeClassSnapshot::operations);
  if (point_to_point != 0) AddCount(Metric::kRankPointToPoint, point_to_point);
  if (!builder_.ServesDetail()) return;
  AddPointToPoint(Function::kSend);
  AddPointToPoint(Function::kRecv);
  AddApiCalls();
  for (const Collective& collective : collectives_) {
    if (WasUsed(*group_, collective.of.function)) AddCollective(collective);
  }
}

void CommunicatorSeries::AddApiCalls() {
  for (size_t i = 0; i < kFunctionCount; ++i) {
    if (WasUsed(*group_, static_cast<Function>(i)))
      AddCount(Metric::kApiCalls, group_->counted->functions[i].calls, function_labels_[i]);
  }
}

void CommunicatorSeries::AddCollective(const Collective& collective) {
  const auto& [of, labels, sizes] = collective;
  const collector::FunctionSnapshot& counts = CountsOf(*group_, of.function);
  for (const SizeCounter& counter : kSizeCounters) {
    if (!builder_.Serves(counter.of_collectives)) continue;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const uint64_t count = SumOfSizes(counts, of.sizes[i].sizes, counter.count);
      Add(counter.of_collectives, static_cast<double>(count) / counter.unit, sizes[i]);
    }
  }
  AddDurations(Metric::kCollectiveDuration, counts, labels, sizes.data());
  if (!HasBusBytes(*group_, of.function)) return;
  for (size_t i = 0; builder_.Serves(Metric::kCollectiveBusBytes) && i < sizes.size(); ++i) {
    Add(Metric::kCollectiveBusBytes, SumOfBusBytes(*group_, of.function, of.sizes[i].sizes),
        sizes[i]);
  }
  AddHistogram(Metric::kCollectiveBusBandwidth, labels,
               static_cast<double>(counts.bandwidth_sum_kib) * kBytesPerKib, counts.bandwidth);
}

void CommunicatorSeries::AddPointToPoint(Function function) {
  if (!WasUsed(*group_, function)) return;
  const collector::FunctionSnapshot& counts = CountsOf(*group_, function);
  const bool is_send = function == Function::kSend;
  for (const SizeCounter& counter : kSizeCounters) {
    const uint64_t count = SumOfSizes(counts, SizeRange{}, counter.count);
    Add(is_send ? counter.of_sends : counter.of_receives,
        static_cast<double>(count) / counter.unit);
  }
  AddDurations(is_send ? Metric::kSendDuration : Metric::kRecvDuration, counts, kNoLabels,
               size_alone_labels_.data());
}

// The daemon counts these itself.
void CommunicatorSeries::AddArrivals() {
  const std::optional<collector::ArrivalCounts>& sum = group_->counted->arrivals;
  if (!sum) return;
  AddSeconds(Metric::kArrivalLateness, sum->lateness_ns);
  AddCount(Metric::kLastArrivals, sum->last);
}

// Kernel seconds are absent where nothing is timed, or not any more: 0 would look like a rank that
// never waits.
void CommunicatorSeries::AddKernelTime(const RankCounts& counts) {
  const auto [collectives, point_to_point] =
      SumByTraffic(*group_, &collector::SizeClassSnapshot::timed_operations);
  if (IsTimed(*group_) && collectives + point_to_point != 0) {
    const auto [in_collectives_ns, in_point_to_point_ns] = counts.kernel_ns;
    AddSeconds(Metric::kRankKernelSeconds, in_collectives_ns + in_point_to_point_ns);
    if (point_to_point != 0)
      AddSeconds(Metric::kRankPointToPointKernelSeconds, in_point_to_point_ns);
  }
  if (HasCollectives(*group_)) AddCount(Metric::kRankTimedOperations, collectives);
}

void CommunicatorSeries::AddSteps(const StepCounts& steps) {
  builder_.CountSince(steps.since_realtime_ns);
  if (group_->counts->node && group_->counts->node->is_lowest)
    AddCount(Metric::kRankSteps, steps.steps);
  AddStepWaits(steps);
}

// Where sizes are one series, it is that of the longest waits.
void CommunicatorSeries::AddStepWaits(const StepCounts& steps) {
  for (const auto& [of, labels, sizes] : collectives_) {
    std::map<size_t, uint64_t> longest_ns;  // by index of sizes
    for (const auto& [kind, wait_ns] : steps.waits_ns) {
      if (kind.function != of.function) continue;
      uint64_t& longest = longest_ns[of.SizeOf(kind.size_class)];
      longest = std::max(longest, wait_ns);
    }
    for (const auto& [size, wait_ns] : longest_ns)
      AddSeconds(Metric::kRankStepWait, wait_ns, sizes[size]);
  }
}

// If sizes are one series, there are no large ones: their bandwidths differ.
void CommunicatorSeries::AddNode(const NodeCounts& node) {
  builder_.CountSince(node.since_realtime_ns);
  if (node.progress) AddCount(Metric::kNodeProgress, *node.progress);
  if (node.compared) AddCount(Metric::kComparedOperations, *node.compared);
  if (node.network) AddNetworkBusBytes(*node.network);
  if (node.large.empty()) return;
  for (const auto& [of, labels, sizes] : collectives_) {
    if (sizes.size() != kSizeClassCount) return;
    for (const auto& [kind, counts] : node.large) {
      if (kind.function != of.function) continue;
      const LabelsId size = sizes[kind.size_class];
      AddCount(Metric::kNodeLargeBusBytes, counts.bus_bytes, size);
      AddSeconds(Metric::kNodeLargeBusySeconds, counts.busy_ns, size);
      AddCount(Metric::kNodeLargeTimedOperations, counts.timed_operations, size);
    }
  }
}

void CommunicatorSeries::AddNetwork() {
  if (!builder_.ServesDetail() || !group_->counted->network) return;
  for (size_t i = 0; i < kNetworkDirectionCount; ++i) {
    const collector::NetworkDirectionCounts& counts = group_->counted->network->directions[i];
    if (counts.operations == 0) continue;
    for (size_t state = 0; state < kNetworkStateCount; ++state) {
      if (const std::optional<uint64_t> wait_ns =
              counts.WaitNs(static_cast<NetworkDirection>(i), static_cast<NetworkState>(state)))
        AddSeconds(Metric::kNetworkWaitSeconds, *wait_ns, state_labels_[i][state]);
    }
    AddCount(Metric::kNetworkTimedBytes, counts.bytes, direction_labels_[i]);
    AddCount(Metric::kNetworkTimedOperations, counts.operations, direction_labels_[i]);
  }
}

void CommunicatorSeries::AddNetworkBusBytes(const collector::NetworkBusBytes& counts) {
  for (size_t i = 0; i < kNetworkDirectionCount; ++i) {
    if (counts.all[i] == 0) continue;
    AddCount(Metric::kNodeNetworkBusBytes, counts.all[i], direction_labels_[i]);
    AddCount(Metric::kNodeNetworkTimedBusBytes, counts.timed[i], direction_labels_[i]);
  }
}

void CommunicatorSeries::AddGauges(std::span<const GroupMember* const> in_use) {
  for (const CommunicatorGauge& gauge : CommunicatorGauges()) {
    if (!builder_.Serves(gauge.metric)) continue;
    if (const std::optional<double> value = ValueOf(gauge, in_use)) Add(gauge.metric, *value);
  }
  AddOldest(Metric::kOldestInFlightStart, in_use);
  std::vector<const GroupMember*> quiet(in_use.begin(), in_use.end());
  std::erase_if(quiet, [](const GroupMember* member) { return !member->IsQuiet(); });
  AddStalled(quiet);
}

void CommunicatorSeries::AddStalled(const std::vector<const GroupMember*>& quiet) {
  if (quiet.empty()) return;
  AddOldest(Metric::kStalledOldestInFlightStart, quiet);
  const GroupMember& newest = **std::ranges::max_element(quiet, {}, [](const GroupMember* member) {
    return member->communicator->created_realtime_ns;
  });
  const CommunicatorLabelSets& sets = labels_.Of(*newest.process, *newest.communicator);
  if (sets.rank_names)
    AddCount(Metric::kStalledCommunicatorRanks, newest.communicator->ranks,
             builder_.AddLabels(sets.rank_names));
  std::set<const ProcessCounts*> processes;
  for (const GroupMember* member : quiet) {
    const collector::CommunicatorSnapshot& communicator = *member->communicator;
    const bool may_wait = !communicator.completion_is_known || !communicator.in_flight.empty();
    if (may_wait && member->process_counts != nullptr) processes.insert(member->process_counts);
  }
  double progress = 0;
  for (const ProcessCounts* process : processes) progress += static_cast<double>(process->progress);
  if (!processes.empty()) Add(Metric::kStalledProcessProgress, progress);
}

void CommunicatorSeries::AddOldest(Metric metric, std::span<const GroupMember* const> members) {
  if (const collector::InFlightOperation* const oldest = OldestInFlight(members))
    Add(metric, SecondsOfTime(oldest->start_realtime_ns),
        function_labels_[static_cast<size_t>(oldest->function)]);
}

void CommunicatorSeries::AddInfo(std::span<const GroupMember* const> in_use) {
  std::set<const LabelSet*> added;  // equal sets are one object of the cache
  const auto add = [&](Metric metric, const SharedLabels& set) {
    if (set && added.insert(set.get()).second) Add(metric, 1, builder_.AddLabels(set));
  };
  for (const GroupMember* member : in_use) {
    const CommunicatorLabelSets& sets = labels_.Of(*member->process, *member->communicator);
    add(Metric::kCommunicatorInfo, sets.communicator_info);
    add(Metric::kRankInfo, sets.rank_info);
  }
}

void CommunicatorSeries::AddHistogram(Metric metric, LabelsId variable_labels, double sum,
                                      std::span<const uint64_t> counts) {
  if (!builder_.Serves(metric)) return;
  if (group_->timed_by_ranks != nullptr) counts = builder_.Keep({counts.begin(), counts.end()});
  builder_.Add(metric, group_labels_, variable_labels, sum, counts);
}

void CommunicatorSeries::AddDurations(Metric metric, const collector::FunctionSnapshot& counts,
                                      LabelsId collective, const LabelsId* sizes) {
  if (!builder_.Serves(metric)) return;
  const uint64_t busy_ns = SumOfSizes(counts, {}, &collector::SizeClassSnapshot::busy_ns);
  const auto seconds = [](uint64_t ns) { return static_cast<double>(ns) / kNsPerSecond; };
  if (!splits_durations_)
    return AddHistogram(metric, collective, seconds(busy_ns), counts.duration);
  collector::SizedDurations rest{.counts = {counts.duration.begin(), counts.duration.end()},
                                 .busy_ns = busy_ns};
  for (size_t i = 0; i < counts.duration_by_size.size(); ++i) {
    const collector::SizedDurations& of_size = counts.duration_by_size[i];
    if (of_size.counts.empty()) continue;
    rest -= of_size;
    AddHistogram(metric, sizes[i], seconds(of_size.busy_ns), of_size.counts);
  }
  if (std::ranges::any_of(rest.counts, [](uint64_t count) { return count != 0; }))
    builder_.Add(metric, group_labels_, collective, seconds(rest.busy_ns),
                 builder_.Keep(std::move(rest.counts)));
}

}  // namespace nccl_exporter::exporter
