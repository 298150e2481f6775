// SPDX-License-Identifier: Apache-2.0
// Number formatting on top of std::to_chars.
#include "exporter/exposition/number_text.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <system_error>

namespace nccl_exporter {
namespace {

// Whole numbers below 2^53 are exact in a float64 and print as integers, which is several times as fast.
constexpr double kExactIntegers = 9007199254740992.0;

char* WriteText(char* out, std::string_view text) {
  std::memcpy(out, text.data(), text.size());
  return out + text.size();
}

}  // namespace

char* WriteNumber(char* out, double value) {
  if (std::abs(value) < kExactIntegers) {
    const int64_t whole = static_cast<int64_t>(value);
    if (static_cast<double>(whole) == value) return std::to_chars(out, out + kNumberTextBytes, whole).ptr;
  }
  if (std::isnan(value)) return WriteText(out, "NaN");
  if (std::isinf(value)) return WriteText(out, value > 0 ? "+Inf" : "-Inf");
  return std::to_chars(out, out + kNumberTextBytes, value).ptr;
}

std::string BoundText(double bound) {
  if (std::isinf(bound)) return bound > 0 ? "+Inf" : "-Inf";
  // Go's rule for the shortest form of %g.
  constexpr int kLeastFixedExponent = -4;
  constexpr int kLeastScientificExponent = 6;
  char text[kNumberTextBytes];
  char* end = std::to_chars(text, text + sizeof text, bound, std::chars_format::scientific).ptr;
  const std::string_view scientific(text, static_cast<size_t>(end - text));
  int exponent = 0;
  const size_t mark = scientific.rfind('e');
  const char* digits = text + mark + (scientific[mark + 1] == '+' ? 2 : 1);
  std::from_chars(digits, end, exponent);
  if (exponent < kLeastFixedExponent || exponent >= kLeastScientificExponent) return std::string(scientific);
  end = std::to_chars(text, text + sizeof text, bound, std::chars_format::fixed).ptr;
  return std::string(text, end);
}

std::string CanonicalBoundText(double bound) {
  std::string text = BoundText(bound);
  if (text.find_first_of(".eIN") == std::string::npos) text += ".0";
  return text;
}

}  // namespace nccl_exporter
