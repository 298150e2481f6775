// SPDX-License-Identifier: Apache-2.0
// Gauges of a communicator, and how those of several members of a group become one. Pure functions,
// for any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "collector/node_snapshot.h"
#include "exporter/series/series_group.h"
#include "proto/metric_catalogue.h"

namespace nccl_exporter::exporter {

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

// Whether the communicator has stalled, as the book says.
bool IsQuiet(const GroupMember& member);

// Whether it is the lowest rank of its communicator on this node.
bool IsLowest(const GroupMember& member);

// The most ranks of a communicator whose lowest rank on the node is a member, in use or not, and is
// not replaced.
std::optional<double> RanksOf(const SeriesGroup& group);

// Null where nothing is known to be in flight.
const collector::InFlightOperation* OldestInFlight(std::span<const GroupMember* const> members);

// A point in time in seconds. Whole seconds are converted separately, because a float64 cannot hold
// nanoseconds since the epoch exactly.
double SecondsOfTime(int64_t realtime_ns);

}  // namespace nccl_exporter::exporter
