// SPDX-License-Identifier: Apache-2.0
// The name that a user may have meant. Pure functions, for any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

namespace nccl_exporter::exporter {

// Insertions, deletions and replacements of characters between two texts.
inline size_t EditDistance(std::string_view from, std::string_view to) {
  // Distances of what was read of `from` to each beginning of `to`.
  std::vector<size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (const char character : from) {
    size_t diagonal = row[0]++;
    for (size_t i = 1; i < row.size(); ++i) {
      const size_t replaced = diagonal + (to[i - 1] == character ? 0 : 1);
      diagonal = row[i];
      row[i] = std::min({row[i - 1] + 1, row[i] + 1, replaced});
    }
  }
  return row.back();
}

// The nearest name, the first of equals. `names` is not empty.
inline std::string_view NearestName(std::string_view text,
                                    std::span<const std::string_view> names) {
  return *std::ranges::min_element(names, {},
                                   [&](std::string_view name) { return EditDistance(text, name); });
}

// The name that `text` begins, or the nearest one if at most a third of `text` differs, or if two
// characters are swapped. Empty if there is none.
inline std::string_view LikelyName(std::string_view text, std::span<const std::string_view> names) {
  constexpr size_t kLeastBeginning = 3;
  if (names.empty() || text.size() < 2) return {};
  for (const std::string_view name : names) {
    if (text.size() >= kLeastBeginning && name.starts_with(text)) return name;
  }
  const std::string_view nearest = NearestName(text, names);
  const size_t distance = EditDistance(text, nearest);
  const bool is_swapped = distance == 2 && std::ranges::is_permutation(text, nearest);
  const bool is_likely = is_swapped || distance <= std::max<size_t>(1, text.size() / 3);
  return is_likely ? nearest : std::string_view();
}

}  // namespace nccl_exporter::exporter
