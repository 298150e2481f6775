// SPDX-License-Identifier: Apache-2.0
// LineFormatter, the format of the daemon's log: one line per message on standard error, as logfmt
// or JSON. spdlog calls it from any thread.
#pragma once

#include <spdlog/formatter.h>

#include <memory>

#include "exporter/cli/options.h"
#include "exporter/log_queue.h"

namespace nccl_exporter::exporter {

// Sets up spdlog's default logger. Call before other threads log. No caller waits for the reader of
// the log: lines for which `queue` has no room are dropped, and the log says so when it goes on.
void ConfigureLog(LogLevel level, LogFormat format, std::shared_ptr<LogQueue> queue);

// ts=2025-01-31T12:00:00.000Z level=info msg="text", or the same as a JSON object. Messages contain
// text of other processes. It is escaped, so that a message is always one line and one value.
class LineFormatter final : public spdlog::formatter {
 public:
  explicit LineFormatter(LogFormat format) : format_(format) {}

  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& line) override;
  std::unique_ptr<spdlog::formatter> clone() const override;

 private:
  const LogFormat format_;
};

}  // namespace nccl_exporter::exporter
