// SPDX-License-Identifier: Apache-2.0
// Sums over the communicators of a group, as its series have them.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "collector/node_snapshot.h"
#include "exporter/series/function_groups.h"
#include "exporter/series/series_group.h"
#include "proto/collective.h"
#include "proto/metric_catalogue.h"

namespace nccl_exporter::exporter {

// Sums are of whole numbers, wide enough for any number of communicators. So they do not depend on
// the order of adding, and a sum never decreases, which PromQL would take for a reset.
template <typename Value>
uint128_t Sum(const SeriesGroup& group, std::span<const Function> functions, Value value) {
  uint128_t sum = 0;
  for (const GroupMember& member : group.Counted()) {
    for (const Function function : functions) {
      sum += value(member.communicator->functions[static_cast<size_t>(function)]);
    }
  }
  return sum;
}

uint64_t SumOfSizes(const collector::FunctionSnapshot& counts, SizeRange range,
                    uint64_t collector::SizeClassSnapshot::*count);

bool WasUsed(const SeriesGroup& group, Function function);
bool WasUsed(const SeriesGroup& group, const FunctionGroup& functions);
bool HasCollectives(const SeriesGroup& group);

// Without a bus factor or the number of ranks that it depends on, bus bytes are unknown, not 0.
bool HasBusBytes(const SeriesGroup& group, const FunctionGroup& functions);
// Rounded once for all communicators with the same number of ranks: see Sum().
double SumOfBusBytes(const SeriesGroup& group, const FunctionGroup& functions, SizeRange range);

// Histogram: the sum of its observations, in the unit of `metric`, and the counts of its buckets.
double HistogramSum(Metric metric, const SeriesGroup& group, const FunctionGroup& functions);
std::span<const uint64_t> HistogramCounts(Metric metric,
                                          const collector::CommunicatorSnapshot& communicator,
                                          Function function);

// Operations with a measured duration, by kind of traffic.
std::array<uint64_t, collector::kTrafficCount> TimedByTraffic(const SeriesGroup& group);
// Whether a member still times operations, or has ended while it did.
bool IsTimed(const SeriesGroup& group);

}  // namespace nccl_exporter::exporter
