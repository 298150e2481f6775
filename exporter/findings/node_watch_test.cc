// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/node_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <sstream>
#include <thread>

#include "exporter/ledger/book_source.h"

namespace nccl_exporter::exporter {
namespace {

std::shared_ptr<const Book> BookOf(collector::NodeSnapshot node) {
  return std::make_shared<const Book>(
      std::make_shared<const collector::NodeSnapshot>(std::move(node)));
}

std::shared_ptr<const Book> NodeWithLiveSegments(uint64_t live) {
  collector::NodeSnapshot node;
  node.segments.live = live;
  return BookOf(std::move(node));
}

// Regression: changes were logged at scrapes alone, not at the snapshots of the history and the
// watchdog.
TEST(NodeWatchTest, LogsWhatChangesWhoeverTakesTheSnapshot) {
  std::ostringstream lines;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(lines)));
  BookSource source([] { return NodeWithLiveSegments(3); });
  {
    const NodeWatch watch(source);
    while (!source.is_ready()) std::this_thread::yield();  // a test that hangs has failed
  }
  spdlog::set_default_logger(before);
  EXPECT_THAT(lines.str(), testing::HasSubstr("segments: 3 live (before: 0)"));
}

// Regression: a thread that read the judge, to judge or to write an answer, held up the history.
TEST(NodeWatchTest, GoesOnWhileTheJudgeIsRead) {
  std::atomic<int> taken = 0;
  BookSource source([&] {
    ++taken;
    return NodeWithLiveSegments(3);
  });
  const Thresholds kStepsOfFiveMilliseconds = Thresholds().Scaled(1000);
  const NodeWatch watch(source, kStepsOfFiveMilliseconds);
  bool goes_on = false;
  watch.Read([&](const NodeJudge&) {
    const int before = taken;
    // A step takes a snapshot and records it: the third begins after two were recorded.
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!goes_on && std::chrono::steady_clock::now() < limit) {
      goes_on = taken >= before + 3;
      std::this_thread::yield();
    }
  });
  EXPECT_TRUE(goes_on);
}

TEST(NodeWatchTest, GivesTheJudgementOfEachStep) {
  std::atomic<bool> is_damaged = true;
  BookSource source([&] {
    collector::NodeSnapshot node;
    node.segment_troubles.resize(1);
    node.segment_troubles[0].present = is_damaged ? 1 : 0;
    return BookOf(std::move(node));
  });
  std::atomic<size_t> findings = 0;
  const Thresholds kStepsOfFiveMilliseconds = Thresholds().Scaled(1000);
  const NodeWatch watch(source, kStepsOfFiveMilliseconds,
                        [&](const Judgement& judgement) { findings = judgement.findings.size(); });
  while (findings != 1) std::this_thread::yield();  // a test that hangs has failed
  is_damaged = false;
  while (findings != 0) std::this_thread::yield();
}

}  // namespace
}  // namespace nccl_exporter::exporter
