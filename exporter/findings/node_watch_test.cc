// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/node_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <sstream>
#include <thread>

#include "exporter/node/snapshot_source.h"

namespace nccl_exporter::exporter {
namespace {

std::shared_ptr<const collector::NodeSnapshot> NodeWithLiveSegments(uint64_t live) {
  collector::NodeSnapshot node;
  node.segments.live = live;
  return std::make_shared<const collector::NodeSnapshot>(std::move(node));
}

// Regression: changes were logged at scrapes alone, not at the snapshots of the history and the
// watchdog.
TEST(NodeWatchTest, LogsWhatChangesWhoeverTakesTheSnapshot) {
  std::ostringstream lines;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(lines)));
  SnapshotSource source([] { return NodeWithLiveSegments(3); });
  {
    const NodeWatch watch(source);
    while (!source.is_ready()) std::this_thread::yield();  // a test that hangs has failed
  }
  spdlog::set_default_logger(before);
  EXPECT_THAT(lines.str(), testing::HasSubstr("segments: 3 live (before: 0)"));
}

}  // namespace
}  // namespace nccl_exporter::exporter
