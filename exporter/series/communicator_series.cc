// SPDX-License-Identifier: Apache-2.0
#include "exporter/series/communicator_series.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "exporter/series/group_sums.h"

namespace nccl_exporter::exporter {
namespace {

constexpr double kNsPerSecond = 1e9;

// A point in time in seconds. Whole seconds are converted separately, because a float64 cannot hold
// nanoseconds since the epoch exactly.
double Seconds(int64_t realtime_ns) {
  constexpr int64_t kWholeSecond = 1000000000;
  return static_cast<double>(realtime_ns / kWholeSecond) +
         static_cast<double>(realtime_ns % kWholeSecond) / kNsPerSecond;
}

// A counter per size class, and its unit: the count is divided by it.
struct SizeCounter {
  Metric metric;
  uint64_t collector::SizeClassSnapshot::*count;
  double unit = 1;
};

constexpr std::array kCollectiveCounters{
    SizeCounter{Metric::kCollectiveOperations, &collector::SizeClassSnapshot::operations},
    SizeCounter{Metric::kCollectiveBytes, &collector::SizeClassSnapshot::bytes},
    SizeCounter{Metric::kCollectiveTimedOperations,
                &collector::SizeClassSnapshot::timed_operations},
    SizeCounter{Metric::kCollectiveBusySeconds, &collector::SizeClassSnapshot::busy_ns,
                kNsPerSecond},
};
constexpr std::array kSendCounters{
    SizeCounter{Metric::kSendOperations, &collector::SizeClassSnapshot::operations},
    SizeCounter{Metric::kSendBytes, &collector::SizeClassSnapshot::bytes},
    SizeCounter{Metric::kSendTimedOperations, &collector::SizeClassSnapshot::timed_operations},
    SizeCounter{Metric::kSendBusySeconds, &collector::SizeClassSnapshot::busy_ns, kNsPerSecond},
};
constexpr std::array kRecvCounters{
    SizeCounter{Metric::kRecvOperations, &collector::SizeClassSnapshot::operations},
    SizeCounter{Metric::kRecvBytes, &collector::SizeClassSnapshot::bytes},
    SizeCounter{Metric::kRecvTimedOperations, &collector::SizeClassSnapshot::timed_operations},
    SizeCounter{Metric::kRecvBusySeconds, &collector::SizeClassSnapshot::busy_ns, kNsPerSecond},
};

// How the values of several communicators become one.
enum class Merge { kLowest, kHighest, kSum };

struct CommunicatorGauge {
  Metric metric;
  Merge merge;
  std::optional<double> (*value)(
      const collector::CommunicatorSnapshot& communicator);  // nothing where it is not known
};

std::optional<double> If(bool is_known, double value) {
  return is_known ? std::optional(value) : std::nullopt;
}

std::optional<double> SecondsOf(std::optional<uint64_t> ns) {
  return ns ? std::optional(static_cast<double>(*ns) / kNsPerSecond) : std::nullopt;
}

double TimingDuty(const collector::CommunicatorSnapshot& c) {
  if (c.timing_source == TimingSource::kNone) return 0;
  if (c.sampling_state == SamplingState::kNone) return 1;
  return static_cast<double>(c.sampling_duty_ppm) / kWholeDutyPpm;
}

constexpr std::array kGauges{
    CommunicatorGauge{Metric::kStartedSequence, Merge::kLowest,
                      [](const collector::CommunicatorSnapshot& c) {
                        return If(true, static_cast<double>(c.started_sequence));
                      }},
    CommunicatorGauge{Metric::kCompletedSequence, Merge::kLowest,
                      [](const collector::CommunicatorSnapshot& c) {
                        return If(c.completion_is_known, static_cast<double>(c.completed_sequence));
                      }},
    CommunicatorGauge{Metric::kInFlight, Merge::kSum,
                      [](const collector::CommunicatorSnapshot& c) {
                        // A finalized communicator has nothing in flight, whatever was seen of it.
                        return If(c.completion_is_known || c.is_closed,
                                  static_cast<double>(c.in_flight.size()));
                      }},
    CommunicatorGauge{Metric::kUnseenOperations, Merge::kSum,
                      [](const collector::CommunicatorSnapshot& c) {
                        return If(c.unseen_operations != 0,
                                  static_cast<double>(c.unseen_operations));
                      }},
    CommunicatorGauge{Metric::kLastProgress, Merge::kHighest,
                      [](const collector::CommunicatorSnapshot& c) {
                        return If(c.last_progress_realtime_ns != 0,
                                  Seconds(c.last_progress_realtime_ns));
                      }},
    CommunicatorGauge{Metric::kCommunicatorRanks, Merge::kHighest,
                      [](const collector::CommunicatorSnapshot& c) {
                        return If(c.ranks != 0, static_cast<double>(c.ranks));
                      }},
    CommunicatorGauge{
        Metric::kTimingDuty, Merge::kLowest,
        [](const collector::CommunicatorSnapshot& c) { return If(true, TimingDuty(c)); }},
    CommunicatorGauge{Metric::kArrivalUncertainty, Merge::kHighest,
                      [](const collector::CommunicatorSnapshot& c) {
                        const collector::ArrivalUncertainty& uncertainty = c.arrival_uncertainty;
                        return SecondsOf(uncertainty.estimated_ns ? uncertainty.estimated_ns
                                                                  : uncertainty.proven_ns);
                      }},
    CommunicatorGauge{Metric::kArrivalProvenUncertainty, Merge::kHighest,
                      [](const collector::CommunicatorSnapshot& c) {
                        return SecondsOf(c.arrival_uncertainty.proven_ns);
                      }},
};

double Merged(Merge merge, double a, double b) {
  switch (merge) {
    case Merge::kLowest:
      return std::min(a, b);
    case Merge::kHighest:
      return std::max(a, b);
    case Merge::kSum:
      break;
  }
  return a + b;
}

const FunctionGroup kSends{
    .members = {Function::kSend}, .labels = nullptr, .sizes = {}, .phases = {}};
const FunctionGroup kReceives{
    .members = {Function::kRecv}, .labels = nullptr, .sizes = {}, .phases = {}};

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
    for (const SharedLabels& phase : one.phases) phase_labels_.push_back(builder.AddLabels(phase));
  }
  for (size_t i = 0; i < collector::kTrafficCount; ++i)
    traffic_labels_[i] = builder.AddLabel("traffic", collector::kTraffics[i].name);
  for (size_t i = 0; functions.splits_durations && i < kSizeClassCount; ++i)
    size_alone_labels_[i] = builder.AddLabels(functions.size_alone[i]);
}

void CommunicatorSeries::AddNamed(const SeriesGroup& group, DetailLevel level) {
  builder_.SetLevel(level);
  splits_durations_ = functions_.splits_durations;
  const LabelsId labels = builder_.AddLabels(group.labels);
  builder_.CountSince(0);  // comparisons are the daemon's own
  AddArrivals(group, labels);
  builder_.CountSince(group.CreatedRealtimeNs());
  AddFunctions(group, labels);
  AddDerived(group, labels);
  AddSteps(group, labels);
  AddLargest(group, labels);
  builder_.CountSince(group.CreatedRealtimeNs());
  const std::vector<const GroupMember*> in_use = group.InUse();
  AddGauges(in_use, labels);
  AddInfo(in_use, labels);
  builder_.SetLevel(DetailLevel::kAll);
}

void CommunicatorSeries::AddOther(const SeriesGroup& group) {
  splits_durations_ = false;  // all functions in all sizes would not fit kSeriesForOthers
  builder_.CountSince(group.CreatedRealtimeNs());
  const LabelsId labels = builder_.AddLabels(group.labels);
  AddFunctions(group, labels);
  AddDerived(group, labels);
}

void CommunicatorSeries::AddFunctions(const SeriesGroup& group, LabelsId labels) {
  AddPointToPoint(group, labels, kSends);
  AddPointToPoint(group, labels, kReceives);
  if (!builder_.ServesDetail()) return;
  AddApiCalls(group, labels);
  const LabelsId* sizes = size_labels_.data();
  const LabelsId* phases = phase_labels_.data();
  for (const FunctionGroup& functions : functions_.collectives) {
    if (WasUsed(group, functions)) AddCollective(group, labels, functions, sizes, phases);
    sizes += functions.sizes.size();
    phases += functions.phases.size();
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
                                       const FunctionGroup& functions, const LabelsId* sizes,
                                       const LabelsId* phases) {
  // The sum over the size classes is one class without the label.
  const std::array whole{SizeGroup{.sizes = {}, .labels = nullptr}};
  const LabelsId labels_of_whole = CollectiveLabelsOf(functions);
  const LabelsId* const size_classes = sizes;
  std::span<const SizeGroup> ranges(functions.sizes);
  if (builder_.SumsSizes()) {
    ranges = whole;
    sizes = &labels_of_whole;
  }
  for (const SizeCounter& counter : kCollectiveCounters) {
    if (!builder_.Serves(counter.metric)) continue;
    for (size_t i = 0; i < ranges.size(); ++i) {
      const auto value = [&](const collector::FunctionSnapshot& counts) {
        return SumOfSizes(counts, ranges[i].sizes, counter.count);
      };
      const auto sum = static_cast<double>(Sum(group, functions.members, value));
      builder_.Add(counter.metric, labels, sizes[i], sum / counter.unit);
    }
  }
  AddDurations(Metric::kCollectiveDuration, group, labels, functions, size_classes);
  AddPhases(group, labels, functions, phases);
  if (!HasBusBytes(group, functions)) return;
  for (size_t i = 0; builder_.Serves(Metric::kCollectiveBusBytes) && i < ranges.size(); ++i) {
    builder_.Add(Metric::kCollectiveBusBytes, labels, sizes[i],
                 SumOfBusBytes(group, functions, ranges[i].sizes));
  }
  AddHistogram(Metric::kCollectiveBusBandwidth, group, labels, functions);
}

void CommunicatorSeries::AddPhases(const SeriesGroup& group, LabelsId labels,
                                   const FunctionGroup& functions, const LabelsId* phases) {
  if (!builder_.Serves(Metric::kCollectivePhaseSeconds)) return;
  std::array<double, kKernelPhaseCount> seconds{};
  bool is_reported = false;
  for (size_t i = 0; i < kKernelPhaseCount; ++i) {
    const auto value = [&](const collector::FunctionSnapshot& counts) {
      return counts.phase_ns[i];
    };
    seconds[i] = static_cast<double>(Sum(group, functions.members, value)) / kNsPerSecond;
    is_reported = is_reported || seconds[i] != 0;
  }
  for (size_t i = 0; is_reported && i < kKernelPhaseCount; ++i) {
    builder_.Add(Metric::kCollectivePhaseSeconds, labels, phases[i], seconds[i]);
  }
}

void CommunicatorSeries::AddPointToPoint(const SeriesGroup& group, LabelsId labels,
                                         const FunctionGroup& functions) {
  if (!WasUsed(group, functions)) return;
  const bool is_send = functions.members.front() == Function::kSend;
  for (const SizeCounter& counter : is_send ? kSendCounters : kRecvCounters) {
    if (!builder_.Serves(counter.metric)) continue;
    const auto value = [&](const collector::FunctionSnapshot& counts) {
      return SumOfSizes(counts, SizeRange{}, counter.count);
    };
    const auto sum = static_cast<double>(Sum(group, functions.members, value));
    builder_.Add(counter.metric, labels, kNoLabels, sum / counter.unit);
  }
  AddDurations(is_send ? Metric::kSendDuration : Metric::kRecvDuration, group, labels, functions,
               size_alone_labels_.data());
}

// The daemon counts these itself. Members with the same labels are summed, departed ones included.
void CommunicatorSeries::AddArrivals(const SeriesGroup& group, LabelsId labels) {
  std::optional<collector::ArrivalCounts> sum;
  for (const GroupMember& member : group.members) {
    const std::optional<collector::ArrivalCounts>& counts = member.communicator->arrivals;
    if (!counts) continue;
    if (!sum) sum.emplace();
    *sum += *counts;
  }
  if (!sum) return;
  builder_.Add(Metric::kArrivalLateness, labels, kNoLabels,
               static_cast<double>(sum->lateness_ns) / kNsPerSecond);
  builder_.Add(Metric::kLastArrivals, labels, kNoLabels, static_cast<double>(sum->last));
  builder_.Add(Metric::kComparedOperations, labels, kNoLabels, static_cast<double>(sum->compared));
  builder_.Add(Metric::kEstimatedArrivals, labels, kNoLabels, static_cast<double>(sum->estimated));
}

// Kernel seconds are absent where nothing is timed, or not any more: 0 would look like a rank that
// never waits.
void CommunicatorSeries::AddDerived(const SeriesGroup& group, LabelsId labels) {
  std::optional<collector::DerivedCounts> sum;
  for (const GroupMember& member : group.members) AddKnown(sum, member.communicator->derived);
  if (!sum) return;
  const std::array<uint64_t, collector::kTrafficCount> timed = TimedByTraffic(group);
  builder_.CountSince(sum->since_realtime_ns);
  for (size_t i = 0; i < timed.size(); ++i) {
    if (timed[i] == 0 || !IsTimed(group)) continue;
    builder_.Add(Metric::kRankKernelSeconds, labels, traffic_labels_[i],
                 static_cast<double>(sum->kernel_ns[i]) / kNsPerSecond);
  }
  builder_.CountSince(group.CreatedRealtimeNs());
  if (HasCollectives(group)) {
    builder_.Add(Metric::kRankTimedOperations, labels, kNoLabels,
                 static_cast<double>(timed[static_cast<size_t>(collector::Traffic::kCollective)]));
  }
}

void CommunicatorSeries::AddSteps(const SeriesGroup& group, LabelsId labels) {
  std::optional<collector::StepCounts> sum;
  for (const GroupMember& member : group.members) {
    if (member.communicator->derived) AddKnown(sum, member.communicator->derived->steps);
  }
  if (!sum) return;
  builder_.CountSince(sum->since_realtime_ns);
  builder_.Add(Metric::kRankSteps, labels, kNoLabels, static_cast<double>(sum->steps));
  AddStepWaits(*sum, labels);
}

// Where collectives or sizes are one series, it is that of the longest waits.
void CommunicatorSeries::AddStepWaits(const collector::StepCounts& steps, LabelsId labels) {
  const LabelsId* sizes = size_labels_.data();
  for (const FunctionGroup& functions : functions_.collectives) {
    for (size_t i = 0; i < functions.sizes.size(); ++i) {
      const SizeRange range = functions.sizes[i].sizes;
      std::optional<uint64_t> longest_ns;
      for (const auto& [kind, wait_ns] : steps.waits_ns) {
        const bool is_here = range.first <= kind.size_class && kind.size_class <= range.last &&
                             std::ranges::find(functions.members, kind.function) !=
                                 functions.members.end();
        if (is_here) longest_ns = std::max(longest_ns.value_or(0), wait_ns);
      }
      if (!longest_ns) continue;
      builder_.Add(Metric::kRankStepWait, labels, sizes[i],
                   static_cast<double>(*longest_ns) / kNsPerSecond);
    }
    sizes += functions.sizes.size();
  }
}

// Each is a sum over all members, so that it does not decrease when a member chooses another. If
// sizes or collectives are one series, there is none: their bandwidths differ.
void CommunicatorSeries::AddLargest(const SeriesGroup& group, LabelsId labels) {
  const LabelsId* sizes = size_labels_.data();
  for (const FunctionGroup& functions : functions_.collectives) {
    for (size_t i = 0; i < functions.sizes.size(); ++i) {
      const SizeRange range = functions.sizes[i].sizes;
      if (functions.members.size() > 1 || range.first != range.last) return;
      const collector::OperationKind kind{functions.members.front(), range.first};
      const bool is_chosen = std::ranges::any_of(group.members, [&](const GroupMember& member) {
        return member.communicator->derived && member.communicator->derived->largest == kind;
      });
      if (is_chosen) AddLarge(group, labels, functions, range, sizes[i]);
    }
    sizes += functions.sizes.size();
  }
}

void CommunicatorSeries::AddLarge(const SeriesGroup& group, LabelsId labels,
                                  const FunctionGroup& functions, SizeRange range, LabelsId size) {
  const auto sum_of = [&](uint64_t collector::SizeClassSnapshot::*count) {
    const auto value = [&](const collector::FunctionSnapshot& counts) {
      return SumOfSizes(counts, range, count);
    };
    return static_cast<double>(Sum(group, functions.members, value));
  };
  const double timed = sum_of(&collector::SizeClassSnapshot::timed_operations);
  if (timed == 0) return;
  builder_.CountSince(group.CreatedRealtimeNs());
  builder_.Add(Metric::kRankLargeBusBytes, labels, size, SumOfBusBytes(group, functions, range));
  builder_.Add(Metric::kRankLargeBusySeconds, labels, size,
               sum_of(&collector::SizeClassSnapshot::busy_ns) / kNsPerSecond);
  builder_.Add(Metric::kRankLargeTimedOperations, labels, size, timed);
}

void CommunicatorSeries::AddGauges(std::span<const GroupMember* const> in_use, LabelsId labels) {
  for (const CommunicatorGauge& gauge : kGauges) {
    std::optional<double> merged;
    for (const GroupMember* member : in_use) {
      const std::optional<double> value = gauge.value(*member->communicator);
      if (value) merged = merged ? Merged(gauge.merge, *merged, *value) : *value;
    }
    if (merged) builder_.Add(gauge.metric, labels, kNoLabels, *merged);
  }
  const collector::InFlightOperation* oldest = nullptr;
  for (const GroupMember* member : in_use) {
    const collector::CommunicatorSnapshot& communicator = *member->communicator;
    if (!communicator.completion_is_known || communicator.in_flight.empty()) continue;
    const collector::InFlightOperation& first = communicator.in_flight.front();
    if (oldest == nullptr || first.start_realtime_ns < oldest->start_realtime_ns) oldest = &first;
  }
  if (oldest == nullptr) return;
  builder_.Add(Metric::kOldestInFlightStart, labels,
               function_labels_[static_cast<size_t>(oldest->function)],
               Seconds(oldest->start_realtime_ns));
}

void CommunicatorSeries::AddInfo(std::span<const GroupMember* const> in_use, LabelsId labels) {
  std::set<const LabelSet*> added;  // equal sets are one object of the cache
  for (const GroupMember* member : in_use) {
    const CommunicatorLabelSets& sets = labels_.Of(*member->process, *member->communicator);
    if (added.insert(sets.communicator_info.get()).second) {
      builder_.Add(Metric::kCommunicatorInfo, labels, builder_.AddLabels(sets.communicator_info),
                   1);
    }
    if (added.insert(sets.rank_info.get()).second) {
      builder_.Add(Metric::kRankInfo, labels, builder_.AddLabels(sets.rank_info), 1);
    }
  }
}

void CommunicatorSeries::AddHistogram(Metric metric, const SeriesGroup& group, LabelsId labels,
                                      const FunctionGroup& functions) {
  if (!builder_.Serves(metric)) return;
  const collector::CommunicatorSnapshot& first = *group.members.front().communicator;
  std::span<const uint64_t> counts = HistogramCounts(metric, first, functions.members.front());
  if (group.members.size() > 1 || functions.members.size() > 1) {
    std::vector<uint64_t> sum(counts.size());
    for (const GroupMember& member : group.members) {
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
  for (const GroupMember& member : group.members) {
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
