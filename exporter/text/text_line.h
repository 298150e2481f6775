// SPDX-License-Identifier: Apache-2.0
// Line(), which appends a line to a text. For any thread.
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <string>
#include <utility>

namespace nccl_exporter::exporter {

template <typename... Arguments>
void Line(std::string& out, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  fmt::format_to(std::back_inserter(out), format, std::forward<Arguments>(arguments)...);
  out += '\n';
}

}  // namespace nccl_exporter::exporter
