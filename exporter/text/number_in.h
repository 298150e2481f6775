// SPDX-License-Identifier: Apache-2.0
// NumberIn(), the number that a text is as a whole. A pure function, for any thread.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace nccl_exporter::exporter {

// Nothing for any other text, and for a number that the type cannot hold. `base`: of whole numbers,
// 10 if there is none.
template <typename Number, typename... Base>
std::optional<Number> NumberIn(std::string_view text, Base... base) {
  Number number{};
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number, base...);
  return error == std::errc() && end == last ? std::optional(number) : std::nullopt;
}

}  // namespace nccl_exporter::exporter
