// SPDX-License-Identifier: Apache-2.0
// TopScreen(), the text of `nccl-exporter top`: a pure function of the node, its last seconds and
// the size of the terminal. For any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "collector/node_snapshot.h"
#include "exporter/findings/node_judge.h"
#include "proto/code_table.h"

namespace nccl_exporter::exporter {

// Order of the ranks. The key `s` selects the next one.
enum class TopSort : uint8_t { kRank, kAge, kLate, kBehind, kCount };
inline constexpr CodeTable<TopSort> kTopSorts{{
    {TopSort::kRank, "rank", "by rank"},
    {TopSort::kAge, "age", "longest in flight first"},
    {TopSort::kLate, "late", "most often the last to enter first"},
    {TopSort::kBehind, "behind", "furthest behind first"},
}};
static_assert(IsInOrder(kTopSorts));

struct TopView {
  size_t columns = 0;  // 0: no limit
  size_t rows = 0;     // 0: no limit, and no line of keys
  TopSort sort = TopSort::kRank;
  bool has_colours = false;
  bool is_paused = false;
  size_t first_rank = 0;  // lines of the table of ranks that are scrolled away
};

// At most `rows` lines, each ended by a line feed. Control characters in text of other processes
// are replaced, because a terminal would execute them.
std::string TopScreen(const collector::NodeSnapshot& node, const NodeJudge& judge,
                      const TopView& view);

}  // namespace nccl_exporter::exporter
