// SPDX-License-Identifier: Apache-2.0
// Pulls, the loop of commands that follow the daemon until a signal: `otlp` and `extension run`.
// For the first thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "exporter/cli/daemon_judgement.h"

namespace CLI {
class App;
}  // namespace CLI

namespace nccl_exporter::exporter {

struct PullRequest {
  std::string daemon{kDefaultDaemon};  // an address that ParseAnyDaemonAddress() knows
  std::string path = "/metrics";
  std::string http_config_file = {};
  std::chrono::nanoseconds interval = std::chrono::seconds(15);
};

// --daemon, --daemon.path and --http.config.file. `request` outlives the app.
void AddPullFlags(CLI::App& app, PullRequest& request);

// Blocks the signals that end a command, in the threads that begin later as well: PullUntilSignal()
// waits for them.
void BlockEndingSignals();

// Gets an answer, or nothing where there is none, and when it was asked for, nanoseconds since the
// epoch. Returns whether it understands the answer.
using TakePull =
    std::function<bool(std::optional<std::string_view> answer, int64_t asked_realtime_ns)>;

// Asks the daemon for its metrics in the protobuf format at each interval, until SIGTERM or SIGINT.
// Says once why there is no answer, until it is for another reason.
void PullUntilSignal(const PullRequest& request, const TakePull& take);

}  // namespace nccl_exporter::exporter
