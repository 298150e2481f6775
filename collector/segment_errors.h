// SPDX-License-Identifier: Apache-2.0
// Counts what was wrong with files, each fault once: a file that lies there broken for a day is one error, not 86,400.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "collector/node_snapshot.h"
#include "collector/segment_file.h"

namespace nccl_exporter {

// Since the daemon started.
class SegmentErrorCounts {
 public:
  using Values = decltype(NodeSnapshot::segment_errors);

  void Add(SegmentError error, uint64_t count = 1) { values_[static_cast<size_t>(error)] += count; }
  const Values& values() const { return values_; }

 private:
  Values values_{};
};

// The fault of one file as it was last counted.
class CountedFault {
 public:
  // Counts the fault, unless it is the one counted last and the file is still the same.
  void Count(SegmentError error, const FileStamp& stamp, SegmentErrorCounts& errors) {
    if (error_ == error && stamp_ == stamp) return;
    error_ = error;
    stamp_ = stamp;
    errors.Add(error);
  }

 private:
  std::optional<SegmentError> error_;
  std::optional<FileStamp> stamp_;
};

}  // namespace nccl_exporter
