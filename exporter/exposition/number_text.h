// SPDX-License-Identifier: Apache-2.0
// Numbers as the text formats spell them.
#pragma once

#include <cstddef>
#include <string>

namespace nccl_exporter {

// Room that any number takes: sign, 17 digits, point and exponent of a float64; 20 digits of a uint64.
inline constexpr size_t kNumberTextBytes = 32;

// Writes the shortest text that reads back as `value` (whole numbers without point or exponent) at `out`, which has
// room for kNumberTextBytes, and returns its end.
char* WriteNumber(char* out, double value);

// A bucket bound as a label value `le`: the spelling of Go's %g, on which Prometheus' exposition formats settled, since
// two spellings of one bound are two series.
std::string BoundText(double bound);

// The same with a point or an exponent in any case, "1.0" for 1: the canonical form of OpenMetrics.
std::string CanonicalBoundText(double bound);

}  // namespace nccl_exporter
