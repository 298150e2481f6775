// SPDX-License-Identifier: Apache-2.0
// RankTable(), the rows of ranks as `top` and `inflight` print them. Pure, for any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "exporter/findings/rank_view.h"
#include "exporter/text/text_table.h"

namespace nccl_exporter::exporter {

enum class RankColumns : uint8_t { kTop, kInFlight };

// A row for each rank. Findings name global ranks: they are shown where they are other numbers.
TextTable RankTable(const std::vector<RankView>& ranks, RankColumns columns, int64_t now_ns);

// Whether the ranks have global ranks, and one of these is another number than the rank.
bool HaveOtherNumbers(const std::vector<RankOnNode>& ranks);

}  // namespace nccl_exporter::exporter
