// SPDX-License-Identifier: Apache-2.0
// `nccl-exporter top`: the page in a terminal. Reads the segments itself, so that it works without a daemon, too.
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

// One screen, of what happened in one interval.
std::string TopOnce(const TopSnapshots& snapshots, TopSort sort);

// Shows a screen every interval, until the user or a signal ends it.
void ShowTop(const TopSnapshots& snapshots, TopSort sort, Terminal& terminal);

}  // namespace nccl_exporter
