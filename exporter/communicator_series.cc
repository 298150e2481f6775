// SPDX-License-Identifier: Apache-2.0
// One row a metric: its id and the expression that is its value.
#include "exporter/communicator_series.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
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

struct FunctionOf {  // one function on one communicator
  const CommunicatorSnapshot& communicator;
  Function function;

  const FunctionSnapshot& counts() const { return communicator.functions[static_cast<size_t>(function)]; }
  uint32_t ranks() const { return static_cast<uint32_t>(communicator.ranks); }

  // Without a bus factor or the number of ranks that it depends on, bus bytes are unknown, not 0.
  bool HasBusBytes() const {
    const BusFactor factor = TraitsOf(function).bus_factor;
    return factor == BusFactor::kOne || (factor != BusFactor::kUndefined && communicator.ranks != 0);
  }
};

struct SizeCounter {
  Metric metric;
  double unit;  // what the values are divided by
  double (*value)(const FunctionOf& of, const SizeClassSnapshot& size);
};

double Operations(const FunctionOf&, const SizeClassSnapshot& size) { return static_cast<double>(size.operations); }
double Bytes(const FunctionOf&, const SizeClassSnapshot& size) { return static_cast<double>(size.bytes); }
double TimedOperations(const FunctionOf&, const SizeClassSnapshot& size) {
  return static_cast<double>(size.timed_operations);
}
double BusyNs(const FunctionOf&, const SizeClassSnapshot& size) { return static_cast<double>(size.busy_ns); }
double WholeBusBytes(const FunctionOf& of, const SizeClassSnapshot& size) {
  return std::nearbyint(BusBytes(of.function, size.timed_bytes, of.ranks()));
}

constexpr std::array kCollectiveCounters{
    SizeCounter{Metric::kCollectiveOperations, 1, Operations},
    SizeCounter{Metric::kCollectiveBytes, 1, Bytes},
    SizeCounter{Metric::kCollectiveTimedOperations, 1, TimedOperations},
    SizeCounter{Metric::kCollectiveBusySeconds, kNsPerSecond, BusyNs},
};
constexpr SizeCounter kBusBytesCounter{Metric::kCollectiveBusBytes, 1, WholeBusBytes};
constexpr std::array kSendCounters{
    SizeCounter{Metric::kSendOperations, 1, Operations},
    SizeCounter{Metric::kSendBytes, 1, Bytes},
    SizeCounter{Metric::kSendTimedOperations, 1, TimedOperations},
    SizeCounter{Metric::kSendBusySeconds, kNsPerSecond, BusyNs},
};
constexpr std::array kRecvCounters{
    SizeCounter{Metric::kRecvOperations, 1, Operations},
    SizeCounter{Metric::kRecvBytes, 1, Bytes},
    SizeCounter{Metric::kRecvTimedOperations, 1, TimedOperations},
    SizeCounter{Metric::kRecvBusySeconds, kNsPerSecond, BusyNs},
};

struct CommunicatorGauge {
  Metric metric;
  std::optional<double> (*value)(const CommunicatorSnapshot& communicator);  // nothing where it is not known
};

std::optional<double> If(bool is_known, double value) { return is_known ? std::optional(value) : std::nullopt; }

double TimingDuty(const CommunicatorSnapshot& c) {
  if (c.timing_source == TimingSource::kNone) return 0;
  if (c.sampling_state == SamplingState::kNone) return 1;
  return static_cast<double>(c.sampling_duty_ppm) / kWholeDutyPpm;
}

constexpr std::array kGauges{
    CommunicatorGauge{Metric::kStartedSequence,
                      [](const CommunicatorSnapshot& c) { return If(true, static_cast<double>(c.started_sequence)); }},
    CommunicatorGauge{Metric::kCompletedSequence,
                      [](const CommunicatorSnapshot& c) {
                        return If(c.completion_is_known, static_cast<double>(c.completed_sequence));
                      }},
    CommunicatorGauge{Metric::kInFlight,
                      [](const CommunicatorSnapshot& c) {
                        return If(c.completion_is_known, static_cast<double>(c.in_flight.size()));
                      }},
    CommunicatorGauge{Metric::kLastProgress,
                      [](const CommunicatorSnapshot& c) {
                        return If(c.last_progress_realtime_ns != 0, Seconds(c.last_progress_realtime_ns));
                      }},
    CommunicatorGauge{Metric::kCommunicatorRanks,
                      [](const CommunicatorSnapshot& c) { return If(c.ranks != 0, static_cast<double>(c.ranks)); }},
    CommunicatorGauge{Metric::kTimingDuty, [](const CommunicatorSnapshot& c) { return If(true, TimingDuty(c)); }},
};

// `value` of a function summed over the members of a subject.
template <typename Value>
double Sum(const Subject& subject, Function function, Value value) {
  double sum = 0;
  for (const Member& member : subject.members) sum += value(FunctionOf{*member.communicator, function});
  return sum;
}

template <typename Condition>
bool Any(const Subject& subject, Function function, Condition condition) {
  return std::ranges::any_of(subject.members, [&](const Member& member) {
    return condition(FunctionOf{*member.communicator, function});
  });
}

bool WasUsed(const FunctionOf& of) {
  return of.counts().calls != 0 ||
         std::ranges::any_of(of.counts().sizes, [](const SizeClassSnapshot& size) { return size.operations != 0; });
}

double TotalBusyNs(const FunctionOf& of) {
  double sum = 0;
  for (const SizeClassSnapshot& size : of.counts().sizes) sum += BusyNs(of, size);
  return sum;
}

double HistogramSum(Metric metric, const Subject& subject, Function function) {
  if (metric != Metric::kCollectiveBusBandwidth) return Sum(subject, function, TotalBusyNs) / kNsPerSecond;
  return Sum(subject, function,
             [](const FunctionOf& of) { return static_cast<double>(of.counts().bandwidth_sum_kib) * kBytesPerKib; });
}

std::span<const uint64_t> HistogramCounts(Metric metric, const FunctionOf& of) {
  if (metric == Metric::kCollectiveBusBandwidth) return of.counts().bandwidth;
  return of.counts().duration;
}

// Label sets that every scrape has in common.
struct FunctionLabels {
  FunctionLabels() {
    for (size_t function = 0; function < kFunctionCount; ++function) {
      const std::string name(kFunctions[function].name);
      plain[function] = std::make_shared<const LabelSet>(Labels{{"collective", name}});
      for (size_t size = 0; size < kSizeClassCount; ++size) {
        with_size[function][size] = std::make_shared<const LabelSet>(
            Labels{{"collective", name}, {"size", std::to_string(kSizeClassBounds[size])}});
      }
    }
  }

  std::array<SharedLabels, kFunctionCount> plain;
  std::array<std::array<SharedLabels, kSizeClassCount>, kFunctionCount> with_size;
};

}  // namespace

CommunicatorSeries::CommunicatorSeries(ExpositionBuilder& builder, LabelCache& labels)
    : builder_(builder), labels_(labels) {
  static const FunctionLabels kLabels;
  for (size_t function = 0; function < kFunctionCount; ++function) {
    function_labels_[function] = builder.AddLabels(kLabels.plain[function]);
    for (size_t size = 0; size < kSizeClassCount; ++size) {
      function_size_labels_[function][size] = builder.AddLabels(kLabels.with_size[function][size]);
    }
  }
}

void CommunicatorSeries::AddNamed(const Subject& subject) {
  const LabelsId labels = builder_.AddLabels(subject.labels);
  builder_.CountSince(0);  // comparisons are the daemon's own
  AddArrivals(subject, labels);
  builder_.CountSince(subject.CreatedRealtimeNs());
  const Member& newest = subject.Newest();
  AddFunctions(subject, labels);
  AddGauges(*newest.communicator, labels);
  const CommunicatorLabelSets& sets = labels_.Of(*newest.process, *newest.communicator);
  builder_.Add(Metric::kCommunicatorInfo, labels, builder_.AddLabels(sets.communicator_info), 1);
  builder_.Add(Metric::kRankInfo, labels, builder_.AddLabels(sets.rank_info), 1);
}

void CommunicatorSeries::AddOther(const Subject& subject) {
  builder_.CountSince(subject.CreatedRealtimeNs());
  AddFunctions(subject, builder_.AddLabels(subject.labels));
}

void CommunicatorSeries::AddFunctions(const Subject& subject, LabelsId labels) {
  for (size_t i = 0; i < kFunctionCount; ++i) {
    const auto function = static_cast<Function>(i);
    if (!Any(subject, function, WasUsed)) continue;
    builder_.Add(Metric::kCollectiveCalls, labels, function_labels_[i],
                 Sum(subject, function, [](const FunctionOf& of) { return static_cast<double>(of.counts().calls); }));
    if (TraitsOf(function).is_point_to_point) {
      AddPointToPoint(subject, labels, function);
    } else {
      AddCollective(subject, labels, function);
    }
  }
}

void CommunicatorSeries::AddCollective(const Subject& subject, LabelsId labels, Function function) {
  const auto add_sizes = [&](const SizeCounter& counter) {
    for (size_t size = 0; size < kSizeClassCount; ++size) {
      const double sum =
          Sum(subject, function, [&](const FunctionOf& of) { return counter.value(of, of.counts().sizes[size]); });
      builder_.Add(counter.metric, labels, function_size_labels_[static_cast<size_t>(function)][size],
                   sum / counter.unit);
    }
  };
  for (const SizeCounter& counter : kCollectiveCounters) add_sizes(counter);
  const LabelsId own = function_labels_[static_cast<size_t>(function)];
  AddHistogram(Metric::kCollectiveDuration, subject, labels, own, function);
  if (!Any(subject, function, [](const FunctionOf& of) { return of.HasBusBytes(); })) return;
  add_sizes(kBusBytesCounter);
  AddHistogram(Metric::kCollectiveBusBandwidth, subject, labels, own, function);
}

void CommunicatorSeries::AddPointToPoint(const Subject& subject, LabelsId labels, Function function) {
  const bool is_send = function == Function::kSend;
  for (const SizeCounter& counter : is_send ? kSendCounters : kRecvCounters) {
    const double sum = Sum(subject, function, [&](const FunctionOf& of) {
      double value = 0;
      for (const SizeClassSnapshot& size : of.counts().sizes) value += counter.value(of, size);
      return value;
    });
    builder_.Add(counter.metric, labels, kNoLabels, sum / counter.unit);
  }
  AddHistogram(is_send ? Metric::kSendDuration : Metric::kRecvDuration, subject, labels, kNoLabels, function);
}

// Counted by the daemon: where members have the same labels, the sum of what it saw of each.
void CommunicatorSeries::AddArrivals(const Subject& subject, LabelsId labels) {
  std::optional<ArrivalCounts> sum;
  for (const Member& member : subject.members) {
    const std::optional<ArrivalCounts>& counts = member.communicator->arrivals;
    if (!counts) continue;
    if (!sum) sum.emplace();
    sum->compared += counts->compared;
    sum->last += counts->last;
    sum->lateness_ns += counts->lateness_ns;
  }
  if (!sum) return;
  builder_.Add(Metric::kArrivalLateness, labels, kNoLabels, static_cast<double>(sum->lateness_ns) / kNsPerSecond);
  builder_.Add(Metric::kLastArrivals, labels, kNoLabels, static_cast<double>(sum->last));
  builder_.Add(Metric::kComparedOperations, labels, kNoLabels, static_cast<double>(sum->compared));
}

void CommunicatorSeries::AddGauges(const CommunicatorSnapshot& communicator, LabelsId labels) {
  for (const CommunicatorGauge& gauge : kGauges) {
    if (const std::optional<double> value = gauge.value(communicator)) {
      builder_.Add(gauge.metric, labels, kNoLabels, *value);
    }
  }
  if (communicator.completion_is_known && !communicator.in_flight.empty()) {
    const InFlightOperation& oldest = communicator.in_flight.front();
    builder_.Add(Metric::kOldestInFlightStart, labels, function_labels_[static_cast<size_t>(oldest.function)],
                 Seconds(oldest.start_realtime_ns));
  }
}

void CommunicatorSeries::AddHistogram(Metric metric, const Subject& subject, LabelsId labels, LabelsId own,
                                      Function function) {
  std::span<const uint64_t> counts = HistogramCounts(metric, {*subject.members.front().communicator, function});
  if (subject.members.size() > 1) {
    std::vector<uint64_t> sum(counts.size());
    for (const Member& member : subject.members) {
      const std::span<const uint64_t> more = HistogramCounts(metric, {*member.communicator, function});
      std::ranges::transform(sum, more, sum.begin(), std::plus<>());
    }
    counts = builder_.Keep(std::move(sum));
  }
  builder_.AddHistogram(metric, labels, own, HistogramSum(metric, subject, function), counts);
}

}  // namespace nccl_exporter
