// SPDX-License-Identifier: Apache-2.0
// Edit distance, row by row.
#include "exporter/catalogue/nearest_name.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace nccl_exporter {
namespace {

size_t Distance(std::string_view from, std::string_view to) {
  std::vector<size_t> row(to.size() + 1);  // distances of what was read of `from` to each beginning of `to`
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

}  // namespace

std::string_view NearestName(std::string_view text, std::span<const std::string_view> names) {
  return *std::ranges::min_element(names, {}, [&](std::string_view name) { return Distance(text, name); });
}

}  // namespace nccl_exporter
