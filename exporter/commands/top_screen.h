// SPDX-License-Identifier: Apache-2.0
// What `nccl-exporter top` shows, as text: a pure function of the node, its last seconds and the size of the terminal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "collector/node_snapshot.h"
#include "exporter/node/node_history.h"
#include "proto/code_table.h"

namespace nccl_exporter {

// Order of the ranks; the key `s` goes to the next.
enum class TopSort : uint8_t { kRank, kAge, kLate, kBehind, kCount };
inline constexpr CodeTable<TopSort> kTopSorts{{
    {TopSort::kRank, "rank", "by rank"},
    {TopSort::kAge, "age", "longest in flight first"},
    {TopSort::kLate, "late", "most often the last to enter first"},
    {TopSort::kBehind, "behind", "furthest behind first"},
}};
static_assert(IsInOrder(kTopSorts));

struct TopView {
  size_t columns = 0;  // 0: as wide as it gets
  size_t rows = 0;     // 0: as long as it gets, and without the line of keys
  TopSort sort = TopSort::kRank;
  bool has_colours = false;
  bool is_paused = false;
  size_t first_rank = 0;  // lines of the table of ranks that are scrolled away
};

// Lines, each ended by a line feed; at most `rows` of them. Text of other processes holds no control characters.
std::string TopScreen(const NodeSnapshot& node, const NodeHistory& history, const TopView& view);

}  // namespace nccl_exporter
