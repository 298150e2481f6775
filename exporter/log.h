// SPDX-License-Identifier: Apache-2.0
// The daemon's log: one line per message on standard error, as logfmt or JSON. Any thread.
#pragma once

#include <spdlog/details/log_msg.h>

#include <memory>
#include <string>

#include "exporter/cli/options.h"
#include "exporter/log_queue.h"

namespace nccl_exporter::exporter {

// Sets up spdlog's default logger. Call before other threads log. No caller waits for the reader of
// the log: lines for which `queue` has no room are dropped, and the log says so when it goes on.
void ConfigureLog(LogLevel level, LogFormat format, std::shared_ptr<LogQueue> queue);

// ts=2025-01-31T12:00:00.000Z level=info msg="text", or the same as a JSON object. Messages contain
// text of other processes. It is escaped, so that a message is always one line and one value.
std::string LogLine(const spdlog::details::log_msg& message, LogFormat format);

}  // namespace nccl_exporter::exporter
