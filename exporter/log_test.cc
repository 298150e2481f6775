// SPDX-License-Identifier: Apache-2.0
// Log lines stay one line and one value, whatever a message holds.
#include "exporter/log.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace nccl_exporter::exporter {
namespace {

std::string Line(LogFormat format, spdlog::level::level_enum level, const std::string& text) {
  spdlog::details::log_msg message("logger", level, text);
  message.time = spdlog::log_clock::time_point(std::chrono::milliseconds(1700000000042));
  spdlog::memory_buf_t line;
  LineFormatter(format).clone()->format(message, line);
  return std::string(line.data(), line.size());
}

TEST(LogTest, WritesLogfmt) {
  EXPECT_EQ(Line(LogFormat::kLogfmt, spdlog::level::info, "listening at :9828"),
            "ts=2023-11-14T22:13:20.042Z level=info msg=\"listening at :9828\"\n");
}

TEST(LogTest, WritesJson) {
  EXPECT_EQ(Line(LogFormat::kJson, spdlog::level::warn, "text"),
            "{\"ts\":\"2023-11-14T22:13:20.042Z\",\"level\":\"warn\",\"msg\":\"text\"}\n");
}

TEST(LogTest, EscapesWhatWouldEndTheValueOrTheLine) {
  const std::string hostile = "a\"b\\c\nd\x01 level=error {}";
  EXPECT_EQ(
      Line(LogFormat::kLogfmt, spdlog::level::err, hostile),
      "ts=2023-11-14T22:13:20.042Z level=error msg=\"a\\\"b\\\\c\\nd\\u0001 level=error {}\"\n");
  EXPECT_EQ(Line(LogFormat::kJson, spdlog::level::debug, hostile),
            "{\"ts\":\"2023-11-14T22:13:20.042Z\",\"level\":\"debug\",\"msg\":"
            "\"a\\\"b\\\\c\\nd\\u0001 level=error {}\"}\n");
}

}  // namespace
}  // namespace nccl_exporter::exporter
