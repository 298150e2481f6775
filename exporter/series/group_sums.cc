// SPDX-License-Identifier: Apache-2.0
#include "exporter/series/group_sums.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace nccl_exporter::exporter {
namespace {

const collector::FunctionSnapshot& CountsOf(const SeriesGroup& group, Function function) {
  return group.counted->functions[static_cast<size_t>(function)];
}

}  // namespace

const collector::FunctionSnapshot& CountsOf(const SeriesGroup& group,
                                            const FunctionGroup& functions,
                                            std::optional<collector::FunctionSnapshot>& sum) {
  if (functions.members.size() == 1) return CountsOf(group, functions.members.front());
  sum.emplace();
  for (const Function function : functions.members) {
    if (WasUsed(group, function)) *sum += CountsOf(group, function);
  }
  return *sum;
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

bool WasUsed(const SeriesGroup& group, const FunctionGroup& functions) {
  return std::ranges::any_of(functions.members,
                             [&](Function function) { return WasUsed(group, function); });
}

bool HasBusBytes(const SeriesGroup& group, const FunctionGroup& functions) {
  const bool knows_ranks = group.timed_by_ranks == nullptr
                               ? group.counted->ranks != 0
                               : std::ranges::any_of(*group.timed_by_ranks,
                                                     [](const auto& it) { return it.first != 0; });
  return std::ranges::any_of(functions.members, [&](Function function) {
    const BusFactor factor = TraitsOf(function).bus_factor;
    return WasUsed(group, function) &&
           (factor == BusFactor::kOne || (factor != BusFactor::kUndefined && knows_ranks));
  });
}

double SumOfBusBytes(const SeriesGroup& group, const FunctionGroup& functions, SizeRange range) {
  double sum = 0;
  for (const Function function : functions.members) {
    const auto add = [&](uint64_t timed, uint64_t ranks) {
      sum += std::nearbyint(BusBytes(function, timed, static_cast<uint32_t>(ranks)));
    };
    if (group.timed_by_ranks == nullptr) {
      add(SumOfSizes(CountsOf(group, function), range, &collector::SizeClassSnapshot::timed_bytes),
          group.counted->ranks);
      continue;
    }
    for (const auto& [ranks, timed] : *group.timed_by_ranks) {
      const auto& by_size = timed[static_cast<size_t>(function)];
      add(std::accumulate(&by_size[range.first], &by_size[range.last] + 1, uint64_t{0}), ranks);
    }
  }
  return sum;
}

std::array<uint64_t, collector::kTrafficCount> SumByTraffic(
    const SeriesGroup& group, uint64_t collector::SizeClassSnapshot::*count) {
  std::array<uint64_t, collector::kTrafficCount> sums{};
  for (size_t i = 0; i < kFunctionCount; ++i) {
    if (!group.counted->functions.IsInUse(i)) continue;
    sums[static_cast<size_t>(collector::TrafficOf(static_cast<Function>(i)))] +=
        SumOfSizes(group.counted->functions[i], SizeRange{}, count);
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

}  // namespace nccl_exporter::exporter
