// SPDX-License-Identifier: Apache-2.0
// TopScreen(), the text of `nccl-exporter top`, and what keys change in it. Functions of their
// arguments alone, for any thread.
#pragma once

#include <cstddef>
#include <string>

#include "collector/node_snapshot.h"
#include "exporter/cli/terminal.h"
#include "exporter/findings/node_judge.h"
#include "exporter/ledger/node_history.h"

namespace nccl_exporter::exporter {

struct TopView {
  size_t columns = 0;  // 0: no limit
  size_t rows = 0;     // 0: no limit, and no line of keys
  bool has_colours = false;
  std::string judged = {};  // whose findings they are, in one line; empty: left out
  size_t first = 0;         // rank below the head of its table; one beyond the last page is moved
  size_t page = 1;          // ranks on the screen, set by TopScreen()
};

// Findings first, then collectives, then ranks with culprits first. Collectives have a third of the
// room that findings leave, and what the ranks do not need. Each line ends in a line feed, and
// there are `view.rows`, but at least two. No line is wider than `view.columns`. Control characters
// in text of other processes are replaced, because a terminal would execute them.
// It keeps the place in the table of ranks, `view.first`, on the last page.
std::string TopScreen(const collector::NodeSnapshot& node, const NodeHistory& history,
                      const Judgement& judgement, TopView& view);

// Moves `view` by a rank or by a page of the latest screen. Other keys change nothing.
void Scroll(Key key, TopView& view);

}  // namespace nccl_exporter::exporter
