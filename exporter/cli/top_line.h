// SPDX-License-Identifier: Apache-2.0
// TopLine, a line of `nccl-exporter top` with its style, and the parts of the screen that are made
// of such lines. Pure functions, for any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/findings/node_judge.h"
#include "exporter/findings/rank_view.h"
#include "exporter/ledger/local_communicators.h"
#include "exporter/ledger/node_history.h"

namespace nccl_exporter::exporter {

// Without line feed and control characters. The style is a control sequence of the table below, and
// left out where colours are off; an empty one is plain.
struct TopLine {
  std::string text;
  std::string_view style = {};
};

inline constexpr std::string_view kCulpritStyle = "\x1b[1;31m", kWaitingStyle = "\x1b[2m",
                                  kTitleStyle = "\x1b[1m", kPlainStyle = "\x1b[0m";

// `columns` is the width of the terminal in characters, 0 for no limit. All but FindingLines() may
// return longer lines, which TopScreen() cuts.

// The worst finding as a whole, wrapped, and the others in one line each; or what was looked at.
// Ages are counted to `now_ns`, nanoseconds since the epoch.
std::vector<TopLine> FindingLines(const Judgement& judgement, int64_t now_ns, size_t columns);

// Rates, times and their trend, by communicator and function, of those that ran in the last
// seconds. Rates are per second and rank: means of the ranks on this node.
std::vector<TopLine> CollectiveLines(const std::vector<CommunicatorOnNode>& communicators,
                                     const NodeHistory& history, size_t columns);

// The head, and a line for each rank.
std::vector<TopLine> RankLines(const std::vector<RankView>& ranks, size_t columns);

// All that is known about one rank: identity, job, GPU, each operation in flight, and the findings
// that name it. `rank` points into `node`.
std::vector<TopLine> DetailLines(const RankView& rank, const collector::NodeSnapshot& node,
                                 const Judgement& judgement, size_t columns);

// Keys and columns.
std::vector<TopLine> HelpLines();

}  // namespace nccl_exporter::exporter
