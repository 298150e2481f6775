// SPDX-License-Identifier: Apache-2.0
// TopOnce() and ShowTop(), the loop of snapshots, screens and keys of `nccl-exporter top`. It reads the segments
// itself, so it works without a daemon. For the first thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "collector/node_snapshot.h"
#include "exporter/commands/terminal.h"
#include "exporter/commands/top_screen.h"

namespace nccl_exporter {

inline constexpr std::chrono::seconds kTopInterval{1};

using TopSnapshots = std::function<std::shared_ptr<const NodeSnapshot>()>;

// Waits one interval and returns the screen of what happened in it.
std::string TopOnce(const TopSnapshots& snapshots, TopSort sort);

// Shows a screen per interval, until the user or a signal ends it.
void ShowTop(const TopSnapshots& snapshots, TopSort sort, Terminal& terminal);

}  // namespace nccl_exporter
