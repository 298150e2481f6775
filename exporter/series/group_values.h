// SPDX-License-Identifier: Apache-2.0
// Values of a group of communicators, as its series have them: sums of counts, and gauges. Pure
// functions, for any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "collector/node_snapshot.h"
#include "exporter/series/function_labels.h"
#include "exporter/series/series_group.h"
#include "proto/collective.h"
#include "proto/metric_catalogue.h"

namespace nccl_exporter::exporter {

const collector::FunctionSnapshot& CountsOf(const SeriesGroup& group, Function function);

uint64_t SumOfSizes(const collector::FunctionSnapshot& counts, SizeRange range,
                    uint64_t collector::SizeClassSnapshot::*count);

bool WasUsed(const SeriesGroup& group, Function function);
bool HasCollectives(const SeriesGroup& group);

// Without a bus factor or the number of ranks that it depends on, bus bytes are unknown, not 0.
bool HasBusBytes(const SeriesGroup& group, Function function);
// Rounded once for all communicators with the same number of ranks, so that it never decreases.
double SumOfBusBytes(const SeriesGroup& group, Function function, SizeRange range);

// A count of all size classes, by kind of traffic.
std::array<uint64_t, collector::kTrafficCount> SumByTraffic(
    const SeriesGroup& group, uint64_t collector::SizeClassSnapshot::*count);
// Whether a member still times operations, or has ended while it did.
bool IsTimed(const SeriesGroup& group);

// Merge, the value of a gauge for several communicators in one series.
enum class Merge { kLowest, kHighest, kSum };

struct CommunicatorGauge {
  Metric metric;
  Merge merge;
  // Nothing where it is not known.
  std::optional<double> (*value)(const GroupMember& member);
};

// All gauges without labels of their own.
std::span<const CommunicatorGauge> CommunicatorGauges();

// Merged value of the members that have one.
std::optional<double> ValueOf(const CommunicatorGauge& gauge,
                              std::span<const GroupMember* const> members);

// The most ranks of a communicator whose lowest rank on the node is a member, in use or not, and is
// not replaced.
std::optional<double> RanksOf(const SeriesGroup& group);

// Null where nothing is known to be in flight.
const collector::InFlightOperation* OldestInFlight(std::span<const GroupMember* const> members);

// A point in time in seconds. Whole seconds are converted separately, because a float64 cannot hold
// nanoseconds since the epoch exactly.
double SecondsOfTime(int64_t realtime_ns);

}  // namespace nccl_exporter::exporter
