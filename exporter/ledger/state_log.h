// SPDX-License-Identifier: Apache-2.0
// StateLog, log lines about changes of the node.
#pragma once

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collector/node_snapshot.h"

namespace nccl_exporter::exporter {

// Errors of one reason and owner that go on are logged once in this time: a directory that cannot
// be read fails at every look.
inline constexpr std::chrono::minutes kErrorLogInterval{10};

// Used by one thread at a time.
class StateLog {
 public:
  // Logs what has changed since the snapshot before.
  void Observe(const collector::NodeSnapshot& snapshot);

  // The lines, each with whether it is a warning; time only moves on by the snapshots.
  struct Line {
    bool is_warning;
    std::string text;
  };
  std::vector<Line> Changes(const collector::NodeSnapshot& snapshot);

 private:
  struct Logged {
    uint64_t errors = 0;
    int64_t realtime_ns = 0;  // 0: never
  };

  collector::SegmentCounts segments_;
  // Has as many entries as SegmentErrorCounts.
  std::map<std::pair<collector::SegmentError, std::optional<uint64_t>>, Logged> errors_;
};

inline void StateLog::Observe(const collector::NodeSnapshot& snapshot) {
  for (const Line& line : Changes(snapshot)) {
    spdlog::log(line.is_warning ? spdlog::level::warn : spdlog::level::info, "{}", line.text);
  }
}

inline std::vector<StateLog::Line> StateLog::Changes(const collector::NodeSnapshot& snapshot) {
  std::vector<Line> lines;
  const collector::SegmentCounts& now = snapshot.segments;
  const bool has_changed =
      now.live != segments_.live || now.exited != segments_.exited ||
      now.unusable != segments_.unusable;  // starting ones are live in a moment
  if (has_changed) {
    lines.push_back({now.unusable > segments_.unusable,
                     fmt::format("segments: {} live (before: {}), {} exited ({}), {} unusable ({})",
                                 now.live, segments_.live, now.exited, segments_.exited,
                                 now.unusable, segments_.unusable)});
    segments_ = now;
  }
  for (const collector::SegmentTrouble& trouble : snapshot.segment_troubles) {
    Logged& told = errors_[{trouble.error, trouble.uid}];
    const uint64_t errors = trouble.count;
    const bool is_due =
        told.realtime_ns == 0 || snapshot.taken_realtime_ns - told.realtime_ns >=
                                     std::chrono::nanoseconds(kErrorLogInterval).count();
    if (errors <= told.errors || !is_due) continue;
    lines.push_back(
        {true,
         fmt::format(
             "segment error {} of uid {}: {} times since the last such line, the latest {}: {}",
             NameOf(trouble.error), trouble.file_uid, errors - told.errors, trouble.file,
             trouble.detail)});
    told = {.errors = errors, .realtime_ns = snapshot.taken_realtime_ns};
  }
  return lines;
}

}  // namespace nccl_exporter::exporter
