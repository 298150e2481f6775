// SPDX-License-Identifier: Apache-2.0
#include "exporter/series/group_values.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace nccl_exporter::exporter {
namespace {

std::optional<double> If(bool is_known, double value) {
  return is_known ? std::optional(value) : std::nullopt;
}

std::optional<double> Started(const GroupMember& member) {
  const collector::CommunicatorSnapshot& c = *member.communicator;
  return static_cast<double>(c.started_sequence);
}

std::optional<double> Completed(const GroupMember& member) {
  const collector::CommunicatorSnapshot& c = *member.communicator;
  return If(c.completion_is_known, static_cast<double>(c.completed_sequence));
}

// A finalized communicator has nothing in flight, whatever was seen of it.
std::optional<double> InFlight(const GroupMember& member) {
  const collector::CommunicatorSnapshot& c = *member.communicator;
  return If(c.completion_is_known || c.is_closed, static_cast<double>(c.in_flight.size()));
}

// A quiet member has counts.
std::optional<double> Progress(const GroupMember& member) {
  return static_cast<double>(member.counts->progress);
}

template <std::optional<double> (*kValue)(const GroupMember&)>
std::optional<double> WhileQuiet(const GroupMember& member) {
  return member.IsQuiet() ? kValue(member) : std::nullopt;
}

constexpr std::array kGauges{
    CommunicatorGauge{Metric::kStartedSequence, Merge::kLowest, Started},
    CommunicatorGauge{Metric::kCompletedSequence, Merge::kLowest, Completed},
    CommunicatorGauge{Metric::kInFlight, Merge::kSum, InFlight},
    CommunicatorGauge{Metric::kStalledProgress, Merge::kSum, WhileQuiet<Progress>},
    CommunicatorGauge{Metric::kStalledStartedSequence, Merge::kLowest, WhileQuiet<Started>},
    CommunicatorGauge{Metric::kStalledCompletedSequence, Merge::kLowest, WhileQuiet<Completed>},
    CommunicatorGauge{Metric::kStalledInFlight, Merge::kSum, WhileQuiet<InFlight>},
    CommunicatorGauge{Metric::kUnseenOperations, Merge::kSum,
                      [](const GroupMember& member) {
                        const uint64_t unseen = member.communicator->unseen_operations;
                        return If(unseen != 0, static_cast<double>(unseen));
                      }},
    CommunicatorGauge{Metric::kLastProgress, Merge::kHighest,
                      [](const GroupMember& member) {
                        const int64_t last_ns = member.communicator->last_progress_realtime_ns;
                        return If(last_ns != 0, SecondsOfTime(last_ns));
                      }},
};

double Merged(Merge merge, double a, double b) {
  if (merge == Merge::kSum) return a + b;
  return merge == Merge::kLowest ? std::min(a, b) : std::max(a, b);
}

}  // namespace

const collector::FunctionSnapshot& CountsOf(const SeriesGroup& group, Function function) {
  return group.counted->functions[static_cast<size_t>(function)];
}

uint64_t SumOfSizes(const collector::FunctionSnapshot& counts, SizeRange range,
                    uint64_t collector::SizeClassSnapshot::*count) {
  uint64_t sum = 0;
  for (size_t i = range.first; i <= range.last; ++i) sum += counts.sizes[i].*count;
  return sum;
}

bool WasUsed(const SeriesGroup& group, Function function) {
  return group.counted->functions.IsInUse(static_cast<size_t>(function));
}

bool HasBusBytes(const SeriesGroup& group, Function function) {
  const BusFactor factor = TraitsOf(function).bus_factor;
  if (factor == BusFactor::kOne || factor == BusFactor::kUndefined)
    return factor == BusFactor::kOne;
  if (group.timed_by_ranks == nullptr) return group.counted->ranks != 0;
  return std::ranges::any_of(*group.timed_by_ranks, [](const auto& it) { return it.first != 0; });
}

double SumOfBusBytes(const SeriesGroup& group, Function function, SizeRange range) {
  double sum = 0;
  const auto add = [&](uint64_t timed, uint64_t ranks) {
    sum += std::nearbyint(BusBytes(function, timed, static_cast<uint32_t>(ranks)));
  };
  if (group.timed_by_ranks == nullptr) {
    add(SumOfSizes(CountsOf(group, function), range, &collector::SizeClassSnapshot::timed_bytes),
        group.counted->ranks);
    return sum;
  }
  for (const auto& [ranks, timed] : *group.timed_by_ranks) {
    const auto& by_size = timed[static_cast<size_t>(function)];
    add(std::accumulate(&by_size[range.first], &by_size[range.last] + 1, uint64_t{0}), ranks);
  }
  return sum;
}

std::array<uint64_t, collector::kTrafficCount> SumByTraffic(
    const SeriesGroup& group, uint64_t collector::SizeClassSnapshot::*count) {
  std::array<uint64_t, collector::kTrafficCount> sums{};
  for (size_t i = 0; i < kFunctionCount; ++i) {
    if (!group.counted->functions.IsInUse(i)) continue;
    sums[static_cast<size_t>(collector::TrafficOf(static_cast<Function>(i)))] +=
        SumOfSizes(CountsOf(group, static_cast<Function>(i)), SizeRange{}, count);
  }
  return sums;
}

bool IsTimed(const SeriesGroup& group) {
  if (group.members.empty()) return group.counted->timing_source != TimingSource::kNone;
  return std::ranges::any_of(group.members, [](const GroupMember& member) {
    return member.communicator->timing_source != TimingSource::kNone;
  });
}

bool HasCollectives(const SeriesGroup& group) {
  for (size_t i = 0; i < kFunctionCount; ++i) {
    const auto function = static_cast<Function>(i);
    if (!TraitsOf(function).is_point_to_point && WasUsed(group, function)) return true;
  }
  return false;
}

std::span<const CommunicatorGauge> CommunicatorGauges() { return kGauges; }

std::optional<double> ValueOf(const CommunicatorGauge& gauge,
                              std::span<const GroupMember* const> members) {
  std::optional<double> merged;
  for (const GroupMember* member : members) {
    const std::optional<double> value = gauge.value(*member);
    if (value) merged = merged ? Merged(gauge.merge, *merged, *value) : *value;
  }
  return merged;
}

const collector::InFlightOperation* OldestInFlight(std::span<const GroupMember* const> members) {
  const collector::InFlightOperation* oldest = nullptr;
  for (const GroupMember* member : members) {
    const collector::CommunicatorSnapshot& communicator = *member->communicator;
    if (!communicator.completion_is_known || communicator.in_flight.empty()) continue;
    const collector::InFlightOperation& first = communicator.in_flight.front();
    if (oldest == nullptr || first.start_realtime_ns < oldest->start_realtime_ns) oldest = &first;
  }
  return oldest;
}

std::optional<double> RanksOf(const SeriesGroup& group) {
  uint64_t ranks = 0;
  for (const GroupMember& member : group.members) {
    if (!member.is_replaced && member.IsLowest())
      ranks = std::max(ranks, member.communicator->ranks);
  }
  return If(ranks != 0, static_cast<double>(ranks));
}

double SecondsOfTime(int64_t realtime_ns) {
  constexpr int64_t kWholeSecond = 1000000000;
  return static_cast<double>(realtime_ns / kWholeSecond) +
         static_cast<double>(realtime_ns % kWholeSecond) / 1e9;
}

}  // namespace nccl_exporter::exporter
