// SPDX-License-Identifier: Apache-2.0
// Tables with one row per enumerator. Each row holds its enumerator as `id`, and a static_assert
// ties its place to it.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace nccl_exporter {

// Number of values of an enum that counts from 0 and ends with kCount.
template <typename Id>
inline constexpr size_t kCountOf = static_cast<size_t>(Id::kCount);

// A number of a segment, or a cause that is counted: its name in labels and in JSON, and its
// meaning in documents.
template <typename Id>
struct CodeRow {
  Id id;
  std::string_view name;
  std::string_view meaning;
};
template <typename Id>
using CodeTable = std::array<CodeRow<Id>, kCountOf<Id>>;

// Whether row i is the row of enumerator i. A row too few leaves zeros at the end, which are the
// row of enumerator 0.
template <typename Row, size_t kRows>
constexpr bool IsInOrder(const std::array<Row, kRows>& rows) {
  for (size_t i = 0; i < kRows; ++i) {
    if (static_cast<size_t>(rows[i].id) != i) return false;
  }
  return true;
}

// The row of `id` in a table that is in order.
template <typename Row, size_t kRows>
constexpr const Row& RowIn(const std::array<Row, kRows>& rows, decltype(Row::id) id) {
  return rows[static_cast<size_t>(id)];
}

}  // namespace nccl_exporter
