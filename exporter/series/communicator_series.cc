// SPDX-License-Identifier: Apache-2.0
// One row a metric: its id and the expression that is its value.
#include "exporter/series/communicator_series.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace nccl_exporter {
namespace {

constexpr double kNsPerSecond = 1e9;
constexpr double kBytesPerKib = 1024;

// A point in time in seconds. Whole seconds apart, since nanoseconds since the epoch are more than a float64 holds
// exactly.
double Seconds(int64_t realtime_ns) {
  constexpr int64_t kWholeSecond = 1000000000;
  return static_cast<double>(realtime_ns / kWholeSecond) +
         static_cast<double>(realtime_ns % kWholeSecond) / kNsPerSecond;
}

// A count of each size class, and what it is divided by.
struct SizeCounter {
  Metric metric;
  uint64_t SizeClassSnapshot::*count;
  double unit = 1;
};

constexpr std::array kCollectiveCounters{
    SizeCounter{Metric::kCollectiveOperations, &SizeClassSnapshot::operations},
    SizeCounter{Metric::kCollectiveBytes, &SizeClassSnapshot::bytes},
    SizeCounter{Metric::kCollectiveTimedOperations, &SizeClassSnapshot::timed_operations},
    SizeCounter{Metric::kCollectiveBusySeconds, &SizeClassSnapshot::busy_ns, kNsPerSecond},
};
constexpr std::array kSendCounters{
    SizeCounter{Metric::kSendOperations, &SizeClassSnapshot::operations},
    SizeCounter{Metric::kSendBytes, &SizeClassSnapshot::bytes},
    SizeCounter{Metric::kSendTimedOperations, &SizeClassSnapshot::timed_operations},
    SizeCounter{Metric::kSendBusySeconds, &SizeClassSnapshot::busy_ns, kNsPerSecond},
};
constexpr std::array kRecvCounters{
    SizeCounter{Metric::kRecvOperations, &SizeClassSnapshot::operations},
    SizeCounter{Metric::kRecvBytes, &SizeClassSnapshot::bytes},
    SizeCounter{Metric::kRecvTimedOperations, &SizeClassSnapshot::timed_operations},
    SizeCounter{Metric::kRecvBusySeconds, &SizeClassSnapshot::busy_ns, kNsPerSecond},
};

// How the values of several communicators become one.
enum class Merge { kLowest, kHighest, kSum };

struct CommunicatorGauge {
  Metric metric;
  Merge merge;
  std::optional<double> (*value)(const CommunicatorSnapshot& communicator);  // nothing where it is not known
};

std::optional<double> If(bool is_known, double value) { return is_known ? std::optional(value) : std::nullopt; }

std::optional<double> SecondsOf(std::optional<uint64_t> ns) {
  return ns ? std::optional(static_cast<double>(*ns) / kNsPerSecond) : std::nullopt;
}

double TimingDuty(const CommunicatorSnapshot& c) {
  if (c.timing_source == TimingSource::kNone) return 0;
  if (c.sampling_state == SamplingState::kNone) return 1;
  return static_cast<double>(c.sampling_duty_ppm) / kWholeDutyPpm;
}

constexpr std::array kGauges{
    CommunicatorGauge{Metric::kStartedSequence, Merge::kLowest,
                      [](const CommunicatorSnapshot& c) { return If(true, static_cast<double>(c.started_sequence)); }},
    CommunicatorGauge{Metric::kCompletedSequence, Merge::kLowest,
                      [](const CommunicatorSnapshot& c) {
                        return If(c.completion_is_known, static_cast<double>(c.completed_sequence));
                      }},
    CommunicatorGauge{Metric::kInFlight, Merge::kSum,
                      [](const CommunicatorSnapshot& c) {
                        // A finalized communicator has nothing in flight, whatever was seen of it.
                        return If(c.completion_is_known || c.is_closed, static_cast<double>(c.in_flight.size()));
                      }},
    CommunicatorGauge{Metric::kUnseenOperations, Merge::kSum,
                      [](const CommunicatorSnapshot& c) {
                        return If(c.unseen_operations != 0, static_cast<double>(c.unseen_operations));
                      }},
    CommunicatorGauge{Metric::kLastProgress, Merge::kHighest,
                      [](const CommunicatorSnapshot& c) {
                        return If(c.last_progress_realtime_ns != 0, Seconds(c.last_progress_realtime_ns));
                      }},
    CommunicatorGauge{Metric::kCommunicatorRanks, Merge::kHighest,
                      [](const CommunicatorSnapshot& c) { return If(c.ranks != 0, static_cast<double>(c.ranks)); }},
    CommunicatorGauge{Metric::kTimingDuty, Merge::kLowest,
                      [](const CommunicatorSnapshot& c) { return If(true, TimingDuty(c)); }},
    CommunicatorGauge{Metric::kArrivalUncertainty, Merge::kHighest,
                      [](const CommunicatorSnapshot& c) {
                        const ArrivalUncertainty& uncertainty = c.arrival_uncertainty;
                        return SecondsOf(uncertainty.estimated_ns ? uncertainty.estimated_ns : uncertainty.proven_ns);
                      }},
    CommunicatorGauge{Metric::kArrivalProvenUncertainty, Merge::kHighest,
                      [](const CommunicatorSnapshot& c) { return SecondsOf(c.arrival_uncertainty.proven_ns); }},
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

// Sums are of whole numbers, wide enough for any number of communicators: in whatever order and grouping they are
// formed, they never go down.
template <typename Value>
uint128_t Sum(const Subject& subject, std::span<const Function> functions, Value value) {
  uint128_t sum = 0;
  for (const Member& member : subject.members) {
    for (const Function function : functions) {
      sum += value(member.communicator->functions[static_cast<size_t>(function)]);
    }
  }
  return sum;
}

uint64_t SumOfSizes(const FunctionSnapshot& counts, SizeRange range, uint64_t SizeClassSnapshot::*count) {
  uint64_t sum = 0;
  for (size_t i = range.first; i <= range.last; ++i) sum += counts.sizes[i].*count;
  return sum;
}

bool WasUsed(const FunctionSnapshot& counts) {
  return counts.calls != 0 ||
         std::ranges::any_of(counts.sizes, [](const SizeClassSnapshot& size) { return size.operations != 0; });
}

bool WasUsed(const Subject& subject, Function function) {
  return std::ranges::any_of(subject.members, [&](const Member& member) {
    return WasUsed(member.communicator->functions[static_cast<size_t>(function)]);
  });
}

bool WasUsed(const Subject& subject, const FunctionGroup& group) {
  return std::ranges::any_of(group.functions, [&](Function function) { return WasUsed(subject, function); });
}

// Without a bus factor or the number of ranks that it depends on, bus bytes are unknown, not 0.
bool HasBusBytes(Function function, uint64_t ranks) {
  const BusFactor factor = TraitsOf(function).bus_factor;
  return factor == BusFactor::kOne || (factor != BusFactor::kUndefined && ranks != 0);
}

bool HasBusBytes(const Subject& subject, const FunctionGroup& group) {
  return std::ranges::any_of(group.functions, [&](Function function) {
    return WasUsed(subject, function) && std::ranges::any_of(subject.members, [&](const Member& member) {
             return HasBusBytes(function, member.communicator->ranks);
           });
  });
}

// Rounded once for all communicators of as many ranks: see Sum().
double SumOfBusBytes(const Subject& subject, const FunctionGroup& group, SizeRange range) {
  double sum = 0;
  for (const Function function : group.functions) {
    std::map<uint64_t, uint64_t> timed_by_ranks;
    for (const Member& member : subject.members) {
      const FunctionSnapshot& counts = member.communicator->functions[static_cast<size_t>(function)];
      timed_by_ranks[member.communicator->ranks] += SumOfSizes(counts, range, &SizeClassSnapshot::timed_bytes);
    }
    for (const auto& [ranks, timed] : timed_by_ranks) {
      sum += std::nearbyint(BusBytes(function, timed, static_cast<uint32_t>(ranks)));
    }
  }
  return sum;
}

double HistogramSum(Metric metric, const Subject& subject, const FunctionGroup& group) {
  if (metric == Metric::kCollectiveBusBandwidth) {
    const auto kib = [](const FunctionSnapshot& counts) { return counts.bandwidth_sum_kib; };
    return static_cast<double>(Sum(subject, group.functions, kib)) * kBytesPerKib;
  }
  const auto busy_ns = [](const FunctionSnapshot& counts) {
    return SumOfSizes(counts, SizeRange{}, &SizeClassSnapshot::busy_ns);
  };
  return static_cast<double>(Sum(subject, group.functions, busy_ns)) / kNsPerSecond;
}

std::span<const uint64_t> HistogramCounts(Metric metric, const CommunicatorSnapshot& communicator, Function function) {
  const FunctionSnapshot& counts = communicator.functions[static_cast<size_t>(function)];
  if (metric == Metric::kCollectiveBusBandwidth) return counts.bandwidth;
  return counts.duration;
}

const FunctionGroup kSends{.functions = {Function::kSend}, .labels = nullptr, .sizes = {}, .phases = {}};
const FunctionGroup kReceives{.functions = {Function::kRecv}, .labels = nullptr, .sizes = {}, .phases = {}};

}  // namespace

CommunicatorSeries::CommunicatorSeries(ExpositionBuilder& builder, SeriesMemory& memory)
    : builder_(builder), memory_(memory) {
  for (const FunctionGroup& group : memory.functions.all) {
    const LabelsId labels = builder.AddLabels(group.labels);
    for (const Function function : group.functions) function_labels_[static_cast<size_t>(function)] = labels;
  }
  for (const FunctionGroup& group : memory.functions.collectives) {
    const LabelsId labels = builder.AddLabels(group.labels);
    for (const Function function : group.functions) collective_labels_[static_cast<size_t>(function)] = labels;
    for (const SizeGroup& sizes : group.sizes) size_labels_.push_back(builder.AddLabels(sizes.labels));
    for (const SharedLabels& phase : group.phases) phase_labels_.push_back(builder.AddLabels(phase));
  }
}

void CommunicatorSeries::AddNamed(const Subject& subject) {
  const LabelsId labels = builder_.AddLabels(subject.labels);
  builder_.CountSince(0);  // comparisons are the daemon's own
  AddArrivals(subject, labels);
  builder_.CountSince(subject.CreatedRealtimeNs());
  AddFunctions(subject, labels);
  const std::vector<const Member*> in_use = subject.InUse();
  AddGauges(in_use, labels);
  AddInfo(in_use, labels);
}

void CommunicatorSeries::AddOther(const Subject& subject) {
  builder_.CountSince(subject.CreatedRealtimeNs());
  AddFunctions(subject, builder_.AddLabels(subject.labels));
}

void CommunicatorSeries::AddFunctions(const Subject& subject, LabelsId labels) {
  for (const FunctionGroup& group : memory_.functions.all) {
    if (!WasUsed(subject, group)) continue;
    const auto calls = [](const FunctionSnapshot& counts) { return counts.calls; };
    builder_.Add(Metric::kApiCalls, labels, function_labels_[static_cast<size_t>(group.functions.front())],
                 static_cast<double>(Sum(subject, group.functions, calls)));
  }
  const LabelsId* sizes = size_labels_.data();
  const LabelsId* phases = phase_labels_.data();
  for (const FunctionGroup& group : memory_.functions.collectives) {
    if (WasUsed(subject, group)) AddCollective(subject, labels, group, sizes, phases);
    sizes += group.sizes.size();
    phases += group.phases.size();
  }
  AddPointToPoint(subject, labels, kSends);
  AddPointToPoint(subject, labels, kReceives);
}

void CommunicatorSeries::AddCollective(const Subject& subject, LabelsId labels, const FunctionGroup& group,
                                       const LabelsId* sizes, const LabelsId* phases) {
  for (const SizeCounter& counter : kCollectiveCounters) {
    if (!builder_.Serves(counter.metric)) continue;
    for (size_t i = 0; i < group.sizes.size(); ++i) {
      const auto value = [&](const FunctionSnapshot& counts) {
        return SumOfSizes(counts, group.sizes[i].sizes, counter.count);
      };
      const auto sum = static_cast<double>(Sum(subject, group.functions, value));
      builder_.Add(counter.metric, labels, sizes[i], sum / counter.unit);
    }
  }
  AddHistogram(Metric::kCollectiveDuration, subject, labels, group);
  AddPhases(subject, labels, group, phases);
  if (!HasBusBytes(subject, group)) return;
  for (size_t i = 0; builder_.Serves(Metric::kCollectiveBusBytes) && i < group.sizes.size(); ++i) {
    builder_.Add(Metric::kCollectiveBusBytes, labels, sizes[i], SumOfBusBytes(subject, group, group.sizes[i].sizes));
  }
  AddHistogram(Metric::kCollectiveBusBandwidth, subject, labels, group);
}

void CommunicatorSeries::AddPhases(const Subject& subject, LabelsId labels, const FunctionGroup& group,
                                   const LabelsId* phases) {
  if (!builder_.Serves(Metric::kCollectivePhaseSeconds)) return;
  std::array<double, kKernelPhaseCount> seconds{};
  bool is_reported = false;
  for (size_t i = 0; i < kKernelPhaseCount; ++i) {
    const auto value = [&](const FunctionSnapshot& counts) { return counts.phase_ns[i]; };
    seconds[i] = static_cast<double>(Sum(subject, group.functions, value)) / kNsPerSecond;
    is_reported = is_reported || seconds[i] != 0;
  }
  for (size_t i = 0; is_reported && i < kKernelPhaseCount; ++i) {
    builder_.Add(Metric::kCollectivePhaseSeconds, labels, phases[i], seconds[i]);
  }
}

void CommunicatorSeries::AddPointToPoint(const Subject& subject, LabelsId labels, const FunctionGroup& group) {
  if (!WasUsed(subject, group)) return;
  const bool is_send = group.functions.front() == Function::kSend;
  for (const SizeCounter& counter : is_send ? kSendCounters : kRecvCounters) {
    const auto value = [&](const FunctionSnapshot& counts) { return SumOfSizes(counts, SizeRange{}, counter.count); };
    const auto sum = static_cast<double>(Sum(subject, group.functions, value));
    builder_.Add(counter.metric, labels, kNoLabels, sum / counter.unit);
  }
  AddHistogram(is_send ? Metric::kSendDuration : Metric::kRecvDuration, subject, labels, group);
}

// Counted by the daemon: where members have the same labels, the sum of what it saw of each.
void CommunicatorSeries::AddArrivals(const Subject& subject, LabelsId labels) {
  std::optional<ArrivalCounts> sum;
  for (const Member& member : subject.members) {
    const std::optional<ArrivalCounts>& counts = member.communicator->arrivals;
    if (!counts) continue;
    if (!sum) sum.emplace();
    *sum += *counts;
  }
  if (!sum) return;
  builder_.Add(Metric::kArrivalLateness, labels, kNoLabels, static_cast<double>(sum->lateness_ns) / kNsPerSecond);
  builder_.Add(Metric::kLastArrivals, labels, kNoLabels, static_cast<double>(sum->last));
  builder_.Add(Metric::kComparedOperations, labels, kNoLabels, static_cast<double>(sum->compared));
  builder_.Add(Metric::kEstimatedArrivals, labels, kNoLabels, static_cast<double>(sum->estimated));
}

void CommunicatorSeries::AddGauges(std::span<const Member* const> in_use, LabelsId labels) {
  for (const CommunicatorGauge& gauge : kGauges) {
    std::optional<double> merged;
    for (const Member* member : in_use) {
      const std::optional<double> value = gauge.value(*member->communicator);
      if (value) merged = merged ? Merged(gauge.merge, *merged, *value) : *value;
    }
    if (merged) builder_.Add(gauge.metric, labels, kNoLabels, *merged);
  }
  const InFlightOperation* oldest = nullptr;
  for (const Member* member : in_use) {
    const CommunicatorSnapshot& communicator = *member->communicator;
    if (!communicator.completion_is_known || communicator.in_flight.empty()) continue;
    const InFlightOperation& first = communicator.in_flight.front();
    if (oldest == nullptr || first.start_realtime_ns < oldest->start_realtime_ns) oldest = &first;
  }
  if (oldest == nullptr) return;
  builder_.Add(Metric::kOldestInFlightStart, labels, function_labels_[static_cast<size_t>(oldest->function)],
               Seconds(oldest->start_realtime_ns));
}

void CommunicatorSeries::AddInfo(std::span<const Member* const> in_use, LabelsId labels) {
  std::set<const LabelSet*> added;  // equal sets are one object of the cache
  for (const Member* member : in_use) {
    const CommunicatorLabelSets& sets = memory_.labels.Of(*member->process, *member->communicator);
    if (added.insert(sets.communicator_info.get()).second) {
      builder_.Add(Metric::kCommunicatorInfo, labels, builder_.AddLabels(sets.communicator_info), 1);
    }
    if (added.insert(sets.rank_info.get()).second) {
      builder_.Add(Metric::kRankInfo, labels, builder_.AddLabels(sets.rank_info), 1);
    }
  }
}

void CommunicatorSeries::AddHistogram(Metric metric, const Subject& subject, LabelsId labels,
                                      const FunctionGroup& group) {
  if (!builder_.Serves(metric)) return;
  const CommunicatorSnapshot& first = *subject.members.front().communicator;
  std::span<const uint64_t> counts = HistogramCounts(metric, first, group.functions.front());
  if (subject.members.size() > 1 || group.functions.size() > 1) {
    std::vector<uint64_t> sum(counts.size());
    for (const Member& member : subject.members) {
      for (const Function function : group.functions) {
        std::ranges::transform(sum, HistogramCounts(metric, *member.communicator, function), sum.begin(),
                               std::plus<>());
      }
    }
    counts = builder_.Keep(std::move(sum));
  }
  builder_.AddHistogram(metric, labels, CollectiveLabelsOf(group), HistogramSum(metric, subject, group), counts);
}

LabelsId CommunicatorSeries::CollectiveLabelsOf(const FunctionGroup& group) const {
  return group.labels == nullptr ? kNoLabels : collective_labels_[static_cast<size_t>(group.functions.front())];
}

}  // namespace nccl_exporter
