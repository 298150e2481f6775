// SPDX-License-Identifier: Apache-2.0
// The loop of snapshots, screens and keys of `nccl-exporter top`. It reads the segments itself, so
// it works without a daemon. Findings are those of the daemon, where that answers. For the first
// thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "collector/node_snapshot.h"
#include "exporter/client/daemon_judgement.h"
#include "exporter/commands/terminal.h"
#include "exporter/commands/top_ranks.h"
#include "exporter/findings/judgement_times.h"

namespace nccl_exporter::exporter {

inline constexpr std::chrono::seconds kTopInterval{1};

using TopSnapshots = std::function<std::shared_ptr<const collector::NodeSnapshot>()>;

// Waits one interval and returns the screen of what happened in it, or the same as JSON. Its own
// findings are those of a single snapshot: no rank is late by one second.
std::string TopOnce(const TopSnapshots& snapshots, const AskDaemon& daemon, TopSort sort,
                    bool is_json);

// Shows a screen per interval, until the user or a signal ends it.
void ShowTop(const TopSnapshots& snapshots, const AskDaemon& daemon, TopSort sort,
             const JudgementTimes& times, Terminal& terminal);

}  // namespace nccl_exporter::exporter
