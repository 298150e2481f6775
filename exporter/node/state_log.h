// SPDX-License-Identifier: Apache-2.0
// Log lines about the node: one when something has changed, none while it stays as it is.
#pragma once

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
  // As many as SegmentErrorCounts has.
  std::map<std::pair<collector::SegmentError, std::optional<uint64_t>>, Logged> errors_;
};

}  // namespace nccl_exporter::exporter
