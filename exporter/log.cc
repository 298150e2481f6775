// SPDX-License-Identifier: Apache-2.0
// Log lines as exporters of the Prometheus project write them.
#include "exporter/log.h"

#include <fmt/format.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "exporter/text/time_text.h"
#include "exporter/text/utf8.h"

namespace nccl_exporter::exporter {
namespace {

std::string_view LevelName(spdlog::level::level_enum level) {
  if (level <= spdlog::level::debug) return "debug";
  if (level == spdlog::level::info) return "info";
  return level == spdlog::level::warn ? "warn" : "error";
}

std::string LineTime(spdlog::log_clock::time_point time) {
  constexpr size_t kMilliseconds = sizeof("2023-11-14T22:13:20.042") - 1;
  const std::chrono::nanoseconds since_epoch = time.time_since_epoch();
  return TimeText(since_epoch.count()).substr(0, kMilliseconds) + 'Z';
}

// Lines go to the queue. The lock is held for the format of a line only.
class QueueSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  QueueSink(std::shared_ptr<LogQueue> queue, LogFormat format)
      : queue_(std::move(queue)), line_format_(format) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    const uint64_t dropped = queue_->dropped();
    if (dropped != reported_) {
      const std::string text = fmt::format(
          "{} lines of the log were dropped: its reader took nothing", dropped - reported_);
      const spdlog::details::log_msg report(message.logger_name, spdlog::level::warn, text);
      if (queue_->Add(LogLine(report, line_format_))) reported_ = dropped;
    }
    if (!queue_->Add(LogLine(message, line_format_))) queue_->CountDropped();
  }
  void flush_() override {}

 private:
  const std::shared_ptr<LogQueue> queue_;
  const LogFormat line_format_;
  uint64_t reported_ = 0;  // of the dropped lines
};

static_assert(static_cast<int>(LogLevel::kDebug) == spdlog::level::debug &&
              static_cast<int>(LogLevel::kError) == spdlog::level::err);

}  // namespace

void ConfigureLog(LogLevel level, LogFormat format, std::shared_ptr<LogQueue> queue) {
  auto logger =
      std::make_shared<spdlog::logger>("nccl-exporter", std::make_shared<QueueSink>(queue, format));
  // The library would write to standard error, which may block.
  logger->set_error_handler([queue](const std::string&) { queue->CountDropped(); });
  logger->set_level(static_cast<spdlog::level::level_enum>(level));
  spdlog::set_default_logger(std::move(logger));
}

std::string LogLine(const spdlog::details::log_msg& message, LogFormat format) {
  std::string text;
  AppendQuoted(std::string_view(message.payload.data(), message.payload.size()), text);
  const std::string time = LineTime(message.time);
  const std::string_view level = LevelName(message.level);
  return format == LogFormat::kJson
             ? fmt::format("{{\"ts\":\"{}\",\"level\":\"{}\",\"msg\":{}}}\n", time, level, text)
             : fmt::format("ts={} level={} msg={}\n", time, level, text);
}

}  // namespace nccl_exporter::exporter
