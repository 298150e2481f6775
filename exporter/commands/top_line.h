// SPDX-License-Identifier: Apache-2.0
// TopLine, a line of `nccl-exporter top` with its style, and the parts of the screen that are made
// of such lines. Pure functions, for any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/commands/top_ranks.h"
#include "exporter/findings/node_judge.h"
#include "exporter/node/local_communicators.h"
#include "exporter/node/node_history.h"

namespace nccl_exporter::exporter {

struct TopLine {
  std::string text;
  std::string_view style = {};
};

inline constexpr std::string_view kCulpritStyle = "\x1b[1;31m", kWaitingStyle = "\x1b[2m",
                                  kTitleStyle = "\x1b[1m", kPlainStyle = "\x1b[0m";

// The worst finding as a whole, the others in one line each; or what was looked at.
std::vector<TopLine> FindingLines(const Judgement& judgement, int64_t now_ns, size_t columns);

// Rates, times and their trend.
std::vector<TopLine> CollectiveLines(const std::vector<CommunicatorOnNode>& communicators,
                                     const NodeHistory& history, size_t columns);

// The head, and a line for each rank.
std::vector<TopLine> RankLines(const std::vector<TopRank>& ranks, size_t columns);

// All that is known about one rank.
std::vector<TopLine> DetailLines(const TopRank& rank, const collector::NodeSnapshot& node,
                                 const Judgement& judgement, size_t columns);

// Keys and columns.
std::vector<TopLine> HelpLines();

}  // namespace nccl_exporter::exporter
