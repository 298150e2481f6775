// SPDX-License-Identifier: Apache-2.0
// Sums over the communicators of a group, as its series have them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "collector/node_snapshot.h"
#include "exporter/series/function_groups.h"
#include "exporter/series/series_group.h"
#include "proto/collective.h"

namespace nccl_exporter::exporter {

// Counts of the functions together: those of the only one, or their sum in `sum`. Sums are of whole
// numbers, so they do not depend on the order of adding.
const collector::FunctionSnapshot& CountsOf(const SeriesGroup& group,
                                            const FunctionGroup& functions,
                                            std::optional<collector::FunctionSnapshot>& sum);

uint64_t SumOfSizes(const collector::FunctionSnapshot& counts, SizeRange range,
                    uint64_t collector::SizeClassSnapshot::*count);

bool WasUsed(const SeriesGroup& group, Function function);
bool WasUsed(const SeriesGroup& group, const FunctionGroup& functions);
bool HasCollectives(const SeriesGroup& group);

// Without a bus factor or the number of ranks that it depends on, bus bytes are unknown, not 0.
bool HasBusBytes(const SeriesGroup& group, const FunctionGroup& functions);
// Rounded once for all communicators with the same number of ranks, so that it never decreases.
double SumOfBusBytes(const SeriesGroup& group, const FunctionGroup& functions, SizeRange range);

// A count of all size classes, by kind of traffic.
std::array<uint64_t, collector::kTrafficCount> SumByTraffic(
    const SeriesGroup& group, uint64_t collector::SizeClassSnapshot::*count);
// Whether a member still times operations, or has ended while it did.
bool IsTimed(const SeriesGroup& group);

}  // namespace nccl_exporter::exporter
