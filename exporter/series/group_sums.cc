// SPDX-License-Identifier: Apache-2.0
#include "exporter/series/group_sums.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace nccl_exporter::exporter {
namespace {

constexpr double kNsPerSecond = 1e9;
constexpr double kBytesPerKib = 1024;

bool HasBusBytes(Function function, uint64_t ranks) {
  const BusFactor factor = TraitsOf(function).bus_factor;
  return factor == BusFactor::kOne || (factor != BusFactor::kUndefined && ranks != 0);
}

}  // namespace

uint64_t SumOfSizes(const collector::FunctionSnapshot& counts, SizeRange range,
                    uint64_t collector::SizeClassSnapshot::*count) {
  uint64_t sum = 0;
  for (size_t i = range.first; i <= range.last; ++i) sum += counts.sizes[i].*count;
  return sum;
}

bool WasUsed(const SeriesGroup& group, Function function) {
  return std::ranges::any_of(group.Counted(), [&](const GroupMember& member) {
    return member.communicator->functions.IsInUse(static_cast<size_t>(function));
  });
}

bool WasUsed(const SeriesGroup& group, const FunctionGroup& functions) {
  return std::ranges::any_of(functions.members,
                             [&](Function function) { return WasUsed(group, function); });
}

bool HasBusBytes(const SeriesGroup& group, const FunctionGroup& functions) {
  return std::ranges::any_of(functions.members, [&](Function function) {
    return WasUsed(group, function) &&
           std::ranges::any_of(group.Counted(), [&](const GroupMember& member) {
             return HasBusBytes(function, member.communicator->ranks);
           });
  });
}

double SumOfBusBytes(const SeriesGroup& group, const FunctionGroup& functions, SizeRange range) {
  double sum = 0;
  for (const Function function : functions.members) {
    std::map<uint64_t, uint64_t> timed_by_ranks;
    for (const GroupMember& member : group.Counted()) {
      const collector::FunctionSnapshot& counts =
          member.communicator->functions[static_cast<size_t>(function)];
      timed_by_ranks[member.communicator->ranks] +=
          SumOfSizes(counts, range, &collector::SizeClassSnapshot::timed_bytes);
    }
    for (const auto& [ranks, timed] : timed_by_ranks) {
      sum += std::nearbyint(BusBytes(function, timed, static_cast<uint32_t>(ranks)));
    }
  }
  return sum;
}

double HistogramSum(Metric metric, const SeriesGroup& group, const FunctionGroup& functions) {
  if (metric == Metric::kCollectiveBusBandwidth) {
    const auto kib = [](const collector::FunctionSnapshot& counts) {
      return counts.bandwidth_sum_kib;
    };
    return static_cast<double>(Sum(group, functions.members, kib)) * kBytesPerKib;
  }
  const auto busy_ns = [](const collector::FunctionSnapshot& counts) {
    return SumOfSizes(counts, SizeRange{}, &collector::SizeClassSnapshot::busy_ns);
  };
  return static_cast<double>(Sum(group, functions.members, busy_ns)) / kNsPerSecond;
}

std::span<const uint64_t> HistogramCounts(Metric metric,
                                          const collector::CommunicatorSnapshot& communicator,
                                          Function function) {
  const collector::FunctionSnapshot& counts = communicator.functions[static_cast<size_t>(function)];
  if (metric == Metric::kCollectiveBusBandwidth) return counts.bandwidth;
  return counts.duration;
}

std::array<uint64_t, collector::kTrafficCount> TimedByTraffic(const SeriesGroup& group) {
  std::array<uint64_t, collector::kTrafficCount> timed{};
  for (const GroupMember& member : group.Counted()) {
    for (size_t i = 0; i < kFunctionCount; ++i) {
      if (!member.communicator->functions.IsInUse(i)) continue;
      timed[static_cast<size_t>(collector::TrafficOf(static_cast<Function>(i)))] +=
          SumOfSizes(member.communicator->functions[i], SizeRange{},
                     &collector::SizeClassSnapshot::timed_operations);
    }
  }
  return timed;
}

bool IsTimed(const SeriesGroup& group) {
  const auto& members = group.members.empty() ? group.sums : group.members;
  return std::ranges::any_of(members, [](const GroupMember& member) {
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

}  // namespace nccl_exporter::exporter
