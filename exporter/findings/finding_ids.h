// SPDX-License-Identifier: Apache-2.0
// FindingIds, the ids of findings, which stay for the life of each. Not thread-safe: its owner
// locks.
//
// An id is a hash of kind, job and start, and of the GPU where a job may have several findings of a
// kind. The start is that of the first sight: `since` moves when the rank that waits longest ends.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "exporter/findings/finding.h"

namespace nccl_exporter::exporter {

class FindingIds {
 public:
  // A finding that comes back within `kept` is the same one.
  explicit FindingIds(std::chrono::nanoseconds kept) : kept_(kept) {}

  // Takes the findings of one judgement, at a time of a clock that is never set.
  void Record(const std::vector<Finding>& findings, int64_t monotonic_ns);

  // 16 hexadecimal digits. A finding that was not recorded yet begins at its `since`, to the
  // second.
  std::string IdOf(const Finding& finding) const;

 private:
  struct Life {
    int64_t start_s = 0;  // since the epoch
    int64_t last_seen_ns = 0;
  };

  std::chrono::nanoseconds kept_;
  std::map<std::string, Life> lives_;  // by what a finding is about
};

}  // namespace nccl_exporter::exporter
