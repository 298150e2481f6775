// SPDX-License-Identifier: Apache-2.0
// Durations, spelled as in Prometheus' flags and configuration. Pure functions, for any thread.
#pragma once

#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

namespace nccl_exporter::exporter {

// A year. Longer durations are typing errors.
inline constexpr std::chrono::nanoseconds kMaxDuration = std::chrono::hours(24 * 365);

struct DurationUnit {
  std::string_view name;
  std::chrono::nanoseconds length;
};
inline constexpr std::array<DurationUnit, 5> kDurationUnits{{
    {"d", std::chrono::hours(24)},
    {"h", std::chrono::hours(1)},
    {"m", std::chrono::minutes(1)},
    {"s", std::chrono::seconds(1)},
    {"ms", std::chrono::milliseconds(1)},
}};

// Removes a whole number from the front of `text` and returns it.
inline std::optional<uint64_t> TakeNumber(std::string_view& text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

// "5m", "1h30m", "250ms"; a number without a unit means seconds. Units are ms, s, m, h and d, each
// at most once, from large to small. Nothing for any other text and for durations above
// kMaxDuration.
inline std::optional<std::chrono::nanoseconds> ParseDuration(std::string_view text) {
  std::chrono::nanoseconds sum{0};
  size_t next_unit = 0;
  do {
    const std::optional<uint64_t> number = TakeNumber(text);
    if (!number) return std::nullopt;
    const std::string_view name = text.substr(0, text.find_first_of("0123456789"));
    const std::string_view unit = name.empty() && sum.count() == 0 && next_unit == 0 ? "s" : name;
    while (next_unit < kDurationUnits.size() && kDurationUnits[next_unit].name != unit) ++next_unit;
    if (next_unit == kDurationUnits.size()) return std::nullopt;
    const std::chrono::nanoseconds length = kDurationUnits[next_unit++].length;
    if (*number > static_cast<uint64_t>((kMaxDuration - sum) / length)) return std::nullopt;
    sum += static_cast<int64_t>(*number) * length;
    text.remove_prefix(name.size());
  } while (!text.empty());
  return sum;
}

}  // namespace nccl_exporter::exporter
