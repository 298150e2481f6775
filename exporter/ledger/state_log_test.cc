// SPDX-License-Identifier: Apache-2.0
// Lines at changes, and only there.
#include "exporter/ledger/state_log.h"

#include <gtest/gtest.h>

namespace nccl_exporter::exporter {
namespace {

constexpr int64_t kStartNs = int64_t{1700000000} * 1000000000;

collector::NodeSnapshot SnapshotAt(int64_t minutes) {
  collector::NodeSnapshot snapshot;
  snapshot.taken_realtime_ns =
      kStartNs + std::chrono::nanoseconds(std::chrono::minutes(minutes)).count();
  return snapshot;
}

TEST(StateLogTest, SaysWhenSegmentsComeAndGo) {
  StateLog log;
  collector::NodeSnapshot snapshot = SnapshotAt(0);
  EXPECT_TRUE(log.Changes(snapshot).empty()) << "nothing there, as before";
  snapshot.segments.live = 8;
  auto lines = log.Changes(snapshot);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].text, "segments: 8 live (before: 0), 0 exited (0), 0 unusable (0)");
  EXPECT_FALSE(lines[0].is_warning);
  EXPECT_TRUE(log.Changes(snapshot).empty());
  snapshot.segments = {.live = 7, .starting = 0, .exited = 0, .unusable = 1};
  lines = log.Changes(snapshot);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(lines[0].is_warning) << "one is unusable";
}

TEST(StateLogTest, RepeatsErrorsThatGoOnAfterAWhileOnly) {
  StateLog log;
  const auto observe = [&](int64_t minute, uint64_t errors) {
    collector::NodeSnapshot snapshot = SnapshotAt(minute);
    snapshot.segment_troubles = {{.error = collector::SegmentError::kDirectoryUnreadable,
                                  .uid = 1001,
                                  .count = errors,
                                  .file = "/run/x",
                                  .file_uid = 1001,
                                  .detail = "Permission denied"}};
    const auto lines = log.Changes(snapshot);
    return lines.empty() ? "" : lines.at(0).text;
  };
  EXPECT_EQ(observe(0, 1),
            "segment error directory_unreadable of uid 1001: 1 times since the last such line, the "
            "latest /run/x: Permission denied");
  EXPECT_EQ(observe(1, 50), "");
  EXPECT_EQ(observe(9, 90), "");
  EXPECT_EQ(observe(10, 95),
            "segment error directory_unreadable of uid 1001: 94 times since the last such line, "
            "the latest /run/x: Permission denied");
  EXPECT_EQ(observe(30, 95), "") << "it has ended";
}

}  // namespace
}  // namespace nccl_exporter::exporter
