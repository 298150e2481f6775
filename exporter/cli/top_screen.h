// SPDX-License-Identifier: Apache-2.0
// TopScreen(), the text of `nccl-exporter top`: a pure function of the node, its last seconds, what
// was found and the size of the terminal. For any thread.
#pragma once

#include "collector/node_snapshot.h"
#include "exporter/cli/top_view.h"
#include "exporter/findings/node_judge.h"
#include "exporter/ledger/node_history.h"

namespace nccl_exporter::exporter {

// Findings first, then collectives, then ranks with culprits first. Collectives have a third of the
// room that findings leave, and what the ranks do not need; the page of ranks is that of the marked
// one. A mark beyond the last rank is moved to it. No line is wider than `view.columns`. Control
// characters in text of other processes are replaced, because a terminal would execute them.
TopPicture TopScreen(const collector::NodeSnapshot& node, const NodeHistory& history,
                     const Judgement& judgement, const TopView& view);

}  // namespace nccl_exporter::exporter
