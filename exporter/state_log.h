// SPDX-License-Identifier: Apache-2.0
// StateLog, the lines of the log about the node: one when something has changed. For any thread.
#pragma once

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collector/node_snapshot.h"

namespace nccl_exporter {

// Continuing errors of one reason and owner are logged once per this time: a directory that cannot be read fails at
// every snapshot.
inline constexpr std::chrono::minutes kErrorLogInterval{10};

class StateLog {
 public:
  // Logs the changes since the previous snapshot.
  void Observe(const NodeSnapshot& snapshot);

  // The lines of Observe(). The time is that of the snapshots, not of a clock.
  struct Line {
    bool is_warning;
    std::string text;
  };
  std::vector<Line> Changes(const NodeSnapshot& snapshot);

 private:
  // The latest line about an error.
  struct Logged {
    uint64_t errors = 0;
    int64_t realtime_ns = 0;  // 0: none yet
  };

  std::mutex mutex_;  // guards what follows
  SegmentCounts segments_;
  std::map<std::pair<SegmentError, std::optional<uint64_t>>, Logged> errors_;  // as many as SegmentErrorCounts has
};

inline void StateLog::Observe(const NodeSnapshot& snapshot) {
  for (const Line& line : Changes(snapshot)) {
    spdlog::log(line.is_warning ? spdlog::level::warn : spdlog::level::info, "{}", line.text);
  }
}

inline std::vector<StateLog::Line> StateLog::Changes(const NodeSnapshot& snapshot) {
  const std::lock_guard lock(mutex_);
  std::vector<Line> lines;
  const SegmentCounts& now = snapshot.segments;
  const bool has_changed = now.live != segments_.live || now.exited != segments_.exited ||
                           now.unusable != segments_.unusable;  // starting ones are live in a moment
  if (has_changed) {
    lines.push_back({now.unusable > segments_.unusable,
                     fmt::format("segments: {} live (before: {}), {} exited ({}), {} unusable ({})", now.live,
                                 segments_.live, now.exited, segments_.exited, now.unusable, segments_.unusable)});
    segments_ = now;
  }
  for (const SegmentTrouble& trouble : snapshot.segment_troubles) {
    Logged& logged = errors_[{trouble.error, trouble.uid}];
    const uint64_t errors = trouble.count;
    const bool is_due = logged.realtime_ns == 0 || snapshot.taken_realtime_ns - logged.realtime_ns >=
                                                       std::chrono::nanoseconds(kErrorLogInterval).count();
    if (errors <= logged.errors || !is_due) continue;
    lines.push_back(
        {true,
         fmt::format("segment error {} of uid {}: {} times since the last such line, the latest {}: {}",
                     NameOf(trouble.error), trouble.file_uid, errors - logged.errors, trouble.file, trouble.detail)});
    logged = {.errors = errors, .realtime_ns = snapshot.taken_realtime_ns};
  }
  return lines;
}

}  // namespace nccl_exporter
