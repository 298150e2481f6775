// SPDX-License-Identifier: Apache-2.0
// Log lines stay one line and one value, whatever a message holds. A reader that stops delays
// nobody.
#include "exporter/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <utility>

namespace nccl_exporter::exporter {
namespace {

std::string Line(LogFormat format, spdlog::level::level_enum level, const std::string& text) {
  spdlog::details::log_msg message("logger", level, text);
  message.time = spdlog::log_clock::time_point(std::chrono::milliseconds(1700000000042));
  return LogLine(message, format);
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

// A pipe that is full to its last byte.
class FullPipe {
 public:
  FullPipe() {
    EXPECT_EQ(pipe(ends_.data()), 0);
    fcntl(ends_[1], F_SETFL, O_NONBLOCK);
    const std::string filling(4096, '\n');
    while (write(ends_[1], filling.data(), filling.size()) > 0) {
    }
    while (write(ends_[1], filling.data(), 1) > 0) {
    }
    fcntl(ends_[1], F_SETFL, 0);
  }
  ~FullPipe() {
    if (ends_[0] >= 0) close(ends_[0]);
    close(ends_[1]);
  }
  FullPipe(const FullPipe&) = delete;
  FullPipe& operator=(const FullPipe&) = delete;

  int writer() const { return ends_[1]; }
  // The reader goes on until it has read `text`.
  std::string ReadUntil(const std::string& text) const {
    std::string all;
    char part[4096];
    while (all.find(text) == std::string::npos) {
      const ssize_t bytes = read(ends_[0], part, sizeof part);
      if (bytes <= 0) break;
      all.append(part, static_cast<size_t>(bytes));
    }
    return all;
  }
  void CloseReader() { close(std::exchange(ends_[0], -1)); }

 private:
  std::array<int, 2> ends_{-1, -1};
};

TEST(LogQueueTest, ABlockedReaderDelaysNobody) {
  const FullPipe pipe;
  LogQueue queue(pipe.writer());
  EXPECT_TRUE(queue.Add("first\n"));
  EXPECT_FALSE(queue.Flush(std::chrono::milliseconds(1)));
  EXPECT_TRUE(queue.Add("second\n"));
  EXPECT_FALSE(queue.IsBlocked(LogQueue::Clock::now()));
  while (!queue.IsBlocked(LogQueue::Clock::now() + std::chrono::hours(1)))
    std::this_thread::yield();  // until the thread has begun to write
  EXPECT_THAT(pipe.ReadUntil("second\n"), testing::HasSubstr("\nfirst\nsecond\n"));
  EXPECT_TRUE(queue.Flush(std::chrono::hours(1)));
  EXPECT_FALSE(queue.IsBlocked(LogQueue::Clock::now() + std::chrono::hours(1)));
}

TEST(LogQueueTest, ADescriptorThatDoesNotBlockIsWaitedFor) {
  const FullPipe pipe;
  fcntl(pipe.writer(), F_SETFL, O_NONBLOCK);
  LogQueue queue(pipe.writer());
  EXPECT_TRUE(queue.Add("late\n"));
  EXPECT_THAT(pipe.ReadUntil("late\n"), testing::EndsWith("late\n"));
  EXPECT_EQ(queue.dropped(), 0u);
}

TEST(LogQueueTest, CountsLinesThatNobodyWillRead) {
  FullPipe pipe;
  pipe.CloseReader();
  std::signal(SIGPIPE, SIG_IGN);
  LogQueue queue(pipe.writer());
  EXPECT_TRUE(queue.Add("one\ntwo\n"));
  EXPECT_TRUE(queue.Flush(std::chrono::hours(1)));
  EXPECT_EQ(queue.dropped(), 2u);
}

TEST(LogTest, SaysHowManyLinesWereDropped) {
  const FullPipe pipe;
  const auto queue = std::make_shared<LogQueue>(pipe.writer(), 250);
  ConfigureLog(LogLevel::kInfo, LogFormat::kLogfmt, queue);
  for (int i = 0; i < 5; ++i) spdlog::info("a line of the log");  // each has 63 bytes
  EXPECT_EQ(queue->dropped(), 2u);
  pipe.ReadUntil("a line of the log");
  EXPECT_TRUE(queue->Flush(std::chrono::hours(1)));
  spdlog::info("x");
  EXPECT_THAT(pipe.ReadUntil("\"x\""),
              testing::HasSubstr("level=warn msg=\"2 lines of the log were dropped"));
  EXPECT_EQ(queue->dropped(), 2u);
}

}  // namespace
}  // namespace nccl_exporter::exporter
