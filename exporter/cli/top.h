// SPDX-License-Identifier: Apache-2.0
// The loop of snapshots, screens and keys of `nccl-exporter top`. It reads the segments itself, so
// it works without a daemon. Findings are those of the daemon, where that answers. For the first
// thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "exporter/cli/client/daemon_judgement.h"
#include "exporter/cli/terminal.h"
#include "exporter/cli/top_ranks.h"
#include "exporter/findings/thresholds.h"
#include "exporter/ledger/book.h"

namespace nccl_exporter::exporter {

// Short enough to see a rank fall behind, and long enough for rates of jobs with ten steps a
// second.
inline constexpr std::chrono::seconds kTopInterval{1};

// Takes a snapshot now, with arrivals: the collector was started. One ledger makes all the books.
using TopBooks = std::function<std::shared_ptr<const Book>()>;

// Waits one interval and returns the screen of what happened in it, or the same as JSON. Its own
// findings are those of a single snapshot: no rank is late by one second. The screen has no colours
// and no limit of width or lines. Both end in a line feed.
std::string TopOnce(const TopBooks& books, const AskDaemon& daemon, TopSort sort,
                    const Thresholds& thresholds, bool is_json);

// Shows a screen per interval, until the user or a signal ends it. Keys are answered at once, from
// the snapshot that is shown. While it is paused no snapshots are taken, so the history has a gap:
// rates after it are means of the gap.
void ShowTop(const TopBooks& books, const AskDaemon& daemon, TopSort sort,
             const Thresholds& thresholds, Terminal& terminal);

}  // namespace nccl_exporter::exporter
