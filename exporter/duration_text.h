// SPDX-License-Identifier: Apache-2.0
// Durations as Prometheus writes them in its flags and configuration.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>

namespace nccl_exporter {

// "5m", "1h30m", "250ms"; a number without a unit means seconds. Units are ms, s, m, h and d, each at most once, from
// great to small. Nothing for any other text and for durations above kMaxDuration.
std::optional<std::chrono::nanoseconds> ParseDuration(std::string_view text);

// A year: above it lie typing errors.
inline constexpr std::chrono::nanoseconds kMaxDuration = std::chrono::hours(24 * 365);

}  // namespace nccl_exporter
