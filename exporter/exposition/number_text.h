// SPDX-License-Identifier: Apache-2.0
// Number spellings of the text formats, on top of std::to_chars. Pure functions, for any thread.
#pragma once

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace nccl_exporter::exporter {

// Room that any number takes: sign, 17 digits, point and exponent of a float64; 20 digits of a
// uint64.
inline constexpr size_t kNumberTextBytes = 32;

// Copies `text` to `out` and returns the end of the copy.
inline char* WriteText(char* out, std::string_view text) {
  std::memcpy(out, text.data(), text.size());
  return out + text.size();
}

// Writes the shortest text that reads back as `value` (whole numbers without point or exponent) at
// `out`, which has room for kNumberTextBytes, and returns its end.
inline char* WriteNumber(char* out, double value) {
  // Whole numbers below 2^53 are exact in a float64. Printing them as integers is several times as
  // fast.
  constexpr double kExactIntegers = 9007199254740992.0;
  if (std::abs(value) < kExactIntegers) {
    const int64_t whole = static_cast<int64_t>(value);
    if (static_cast<double>(whole) == value)
      return std::to_chars(out, out + kNumberTextBytes, whole).ptr;
  }
  if (std::isnan(value)) return WriteText(out, "NaN");
  if (std::isinf(value)) return WriteText(out, value > 0 ? "+Inf" : "-Inf");
  return std::to_chars(out, out + kNumberTextBytes, value).ptr;
}

// A bucket bound as a label value `le`, spelled as Go's %g does: Prometheus' exposition formats use
// this spelling, and two spellings of one bound would be two series.
inline std::string BoundText(double bound) {
  if (std::isinf(bound)) return bound > 0 ? "+Inf" : "-Inf";
  char text[kNumberTextBytes];
  return {text, std::to_chars(text, text + sizeof text, bound, std::chars_format::general).ptr};
}

// BoundText() with a point or an exponent in any case, "1.0" for 1: the canonical form of
// OpenMetrics.
inline std::string CanonicalBoundText(double bound) {
  std::string text = BoundText(bound);
  if (text.find_first_of(".eIN") == std::string::npos) text += ".0";
  return text;
}

}  // namespace nccl_exporter::exporter
