// SPDX-License-Identifier: Apache-2.0
#include "exporter/series/communicator_series.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "exporter/series/communicator_gauges.h"
#include "exporter/series/group_sums.h"

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

const FunctionGroup kSends{.members = {Function::kSend}, .labels = nullptr, .sizes = {}};
const FunctionGroup kReceives{.members = {Function::kRecv}, .labels = nullptr, .sizes = {}};

}  // namespace

CommunicatorSeries::CommunicatorSeries(ExpositionBuilder& builder, LabelCache& labels,
                                       const FunctionGroups& functions)
    : builder_(builder), labels_(labels), functions_(functions) {
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

void CommunicatorSeries::AddNamed(const SeriesGroup& group, bool with_detail) {
  builder_.SetDetail(with_detail);
  splits_durations_ = functions_.splits_durations;
  const LabelsId labels = builder_.AddLabels(group.labels);
  builder_.CountSince(0);  // comparisons are the daemon's own
  AddArrivals(group, labels);
  builder_.CountSince(group.counted->created_realtime_ns);
  AddFunctions(group, labels);
  AddNetwork(group, labels);
  if (const RankCounts* const counts = group.counts) {
    AddKernelTime(group, *counts, labels);
    if (counts->steps) AddSteps(group, *counts->steps, labels);
    if (counts->node) AddNode(*counts->node, labels);
  }
  builder_.CountSince(group.counted->created_realtime_ns);
  const std::vector<const GroupMember*> in_use = group.InUse();
  if (const std::optional<double> ranks = RanksOf(group))
    builder_.Add(Metric::kCommunicatorRanks, labels, kNoLabels, *ranks);
  AddGauges(in_use, labels);
  AddInfo(in_use, labels);
  builder_.SetDetail(true);
}

void CommunicatorSeries::AddOther(const SeriesGroup& group) {
  splits_durations_ = false;  // all functions in all sizes would not fit kSeriesForOthers
  builder_.CountSince(group.counted->created_realtime_ns);
  const LabelsId labels = builder_.AddLabels(group.labels);
  AddFunctions(group, labels);
  AddNetwork(group, labels);
  if (group.counts == nullptr) return;
  AddKernelTime(group, *group.counts, labels);
  const std::optional<NodeCounts>& node = group.counts->node;
  if (node && node->network) AddNetworkBusBytes(*node->network, labels);
}

void CommunicatorSeries::AddFunctions(const SeriesGroup& group, LabelsId labels) {
  const auto [collectives, point_to_point] =
      SumByTraffic(group, &collector::SizeClassSnapshot::operations);
  if (point_to_point != 0)
    builder_.Add(Metric::kRankPointToPoint, labels, kNoLabels, static_cast<double>(point_to_point));
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
    uint64_t calls = 0;
    for (const Function function : functions.members)
      calls += group.counted->functions[static_cast<size_t>(function)].calls;
    builder_.Add(Metric::kApiCalls, labels,
                 function_labels_[static_cast<size_t>(functions.members.front())],
                 static_cast<double>(calls));
  }
}

void CommunicatorSeries::AddCollective(const SeriesGroup& group, LabelsId labels,
                                       const FunctionGroup& functions, const LabelsId* sizes) {
  std::optional<collector::FunctionSnapshot> sum;
  const collector::FunctionSnapshot& counts = CountsOf(group, functions, sum);
  for (const SizeCounter& counter : kSizeCounters) {
    if (!builder_.Serves(counter.of_collectives)) continue;
    for (size_t i = 0; i < functions.sizes.size(); ++i) {
      const uint64_t count = SumOfSizes(counts, functions.sizes[i].sizes, counter.count);
      builder_.Add(counter.of_collectives, labels, sizes[i],
                   static_cast<double>(count) / counter.unit);
    }
  }
  const LabelsId collective = collective_labels_[static_cast<size_t>(functions.members.front())];
  is_kept_ = !sum && group.timed_by_ranks == nullptr;
  AddDurations(Metric::kCollectiveDuration, counts, labels, collective, sizes);
  if (!HasBusBytes(group, functions)) return;
  for (size_t i = 0; builder_.Serves(Metric::kCollectiveBusBytes) && i < functions.sizes.size();
       ++i) {
    builder_.Add(Metric::kCollectiveBusBytes, labels, sizes[i],
                 SumOfBusBytes(group, functions, functions.sizes[i].sizes));
  }
  AddHistogram(Metric::kCollectiveBusBandwidth, labels, collective,
               static_cast<double>(counts.bandwidth_sum_kib) * kBytesPerKib, counts.bandwidth);
}

void CommunicatorSeries::AddPointToPoint(const SeriesGroup& group, LabelsId labels,
                                         const FunctionGroup& functions) {
  if (!WasUsed(group, functions)) return;
  std::optional<collector::FunctionSnapshot> sum;
  const collector::FunctionSnapshot& counts = CountsOf(group, functions, sum);
  const bool is_send = functions.members.front() == Function::kSend;
  for (const SizeCounter& counter : kSizeCounters) {
    const uint64_t count = SumOfSizes(counts, SizeRange{}, counter.count);
    builder_.Add(is_send ? counter.of_sends : counter.of_receives, labels, kNoLabels,
                 static_cast<double>(count) / counter.unit);
  }
  is_kept_ = !sum && group.timed_by_ranks == nullptr;
  AddDurations(is_send ? Metric::kSendDuration : Metric::kRecvDuration, counts, labels, kNoLabels,
               size_alone_labels_.data());
}

// The daemon counts these itself.
void CommunicatorSeries::AddArrivals(const SeriesGroup& group, LabelsId labels) {
  const std::optional<collector::ArrivalCounts>& sum = group.counted->arrivals;
  if (!sum) return;
  builder_.Add(Metric::kArrivalLateness, labels, kNoLabels,
               static_cast<double>(sum->lateness_ns) / kNsPerSecond);
  builder_.Add(Metric::kLastArrivals, labels, kNoLabels, static_cast<double>(sum->last));
}

// Kernel seconds are absent where nothing is timed, or not any more: 0 would look like a rank that
// never waits.
void CommunicatorSeries::AddKernelTime(const SeriesGroup& group, const RankCounts& counts,
                                       LabelsId labels) {
  const auto [collectives, point_to_point] =
      SumByTraffic(group, &collector::SizeClassSnapshot::timed_operations);
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
  if (group.counts->node && group.counts->node->is_lowest)
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
  if (node.network) AddNetworkBusBytes(*node.network, labels);
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

void CommunicatorSeries::AddNetwork(const SeriesGroup& group, LabelsId labels) {
  if (!builder_.ServesDetail() || !group.counted->network) return;
  for (size_t i = 0; i < kNetworkDirectionCount; ++i) {
    const collector::NetworkDirectionCounts& counts = group.counted->network->directions[i];
    if (counts.operations == 0) continue;
    for (size_t state = 0; state < kNetworkStateCount; ++state) {
      if (const std::optional<uint64_t> wait_ns =
              counts.WaitNs(static_cast<NetworkDirection>(i), static_cast<NetworkState>(state)))
        builder_.Add(Metric::kNetworkWaitSeconds, labels, state_labels_[i][state],
                     static_cast<double>(*wait_ns) / kNsPerSecond);
    }
    builder_.Add(Metric::kNetworkTimedBytes, labels, direction_labels_[i],
                 static_cast<double>(counts.bytes));
    builder_.Add(Metric::kNetworkTimedOperations, labels, direction_labels_[i],
                 static_cast<double>(counts.operations));
  }
}

void CommunicatorSeries::AddNetworkBusBytes(const collector::NetworkBusBytes& counts,
                                            LabelsId labels) {
  for (size_t i = 0; i < kNetworkDirectionCount; ++i) {
    if (counts.all[i] == 0) continue;
    builder_.Add(Metric::kNodeNetworkBusBytes, labels, direction_labels_[i],
                 static_cast<double>(counts.all[i]));
    builder_.Add(Metric::kNodeNetworkTimedBusBytes, labels, direction_labels_[i],
                 static_cast<double>(counts.timed[i]));
  }
}

void CommunicatorSeries::AddGauges(std::span<const GroupMember* const> in_use, LabelsId labels) {
  for (const CommunicatorGauge& gauge : CommunicatorGauges()) {
    if (!builder_.Serves(gauge.metric)) continue;
    if (const std::optional<double> value = ValueOf(gauge, in_use))
      builder_.Add(gauge.metric, labels, kNoLabels, *value);
  }
  AddOldest(Metric::kOldestInFlightStart, in_use, labels);
  std::vector<const GroupMember*> quiet(in_use.begin(), in_use.end());
  std::erase_if(quiet, [](const GroupMember* member) { return !IsQuiet(*member); });
  AddStalled(quiet, labels);
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

void CommunicatorSeries::AddHistogram(Metric metric, LabelsId labels, LabelsId variable_labels,
                                      double sum, std::span<const uint64_t> counts) {
  if (!builder_.Serves(metric)) return;
  if (!is_kept_) counts = builder_.Keep({counts.begin(), counts.end()});
  builder_.Add(metric, labels, variable_labels, sum, counts);
}

void CommunicatorSeries::AddDurations(Metric metric, const collector::FunctionSnapshot& counts,
                                      LabelsId labels, LabelsId collective, const LabelsId* sizes) {
  if (!builder_.Serves(metric)) return;
  const uint64_t busy_ns = SumOfSizes(counts, {}, &collector::SizeClassSnapshot::busy_ns);
  const auto seconds = [](uint64_t ns) { return static_cast<double>(ns) / kNsPerSecond; };
  if (!splits_durations_)
    return AddHistogram(metric, labels, collective, seconds(busy_ns), counts.duration);
  collector::SizedDurations rest{.counts = {counts.duration.begin(), counts.duration.end()},
                                 .busy_ns = busy_ns};
  for (size_t i = 0; i < counts.duration_by_size.size(); ++i) {
    const collector::SizedDurations& of_size = counts.duration_by_size[i];
    if (of_size.counts.empty()) continue;
    rest -= of_size;
    AddHistogram(metric, labels, sizes[i], seconds(of_size.busy_ns), of_size.counts);
  }
  if (std::ranges::any_of(rest.counts, [](uint64_t count) { return count != 0; }))
    builder_.Add(metric, labels, collective, seconds(rest.busy_ns),
                 builder_.Keep(std::move(rest.counts)));
}

}  // namespace nccl_exporter::exporter
