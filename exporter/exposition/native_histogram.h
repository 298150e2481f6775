// SPDX-License-Identifier: Apache-2.0
// A series' counts as a Prometheus native histogram: sparse buckets as spans and deltas.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "exporter/exposition/exposition.h"

namespace nccl_exporter {

// Buckets of one histogram at most, as Prometheus' own client libraries advise. A histogram that fills more is served
// at half its resolution, and so on: counts only grow, so it never returns to the finer one.
inline constexpr size_t kNativeBucketLimit = 160;

// Empty buckets between two that are not which cost less as counts of 0 than as a span of their own.
inline constexpr int kWidestGap = 2;

// May be filled again and again: the vectors keep their memory.
struct NativeHistogram {
  struct Span {
    int32_t offset = 0;  // of the first span, the index of its first bucket; else empty buckets since the span before
    uint32_t length = 0;

    bool operator==(const Span&) const = default;
  };

  int schema = 0;
  double zero_threshold = 0;
  uint64_t zero_count = 0;
  std::vector<Span> spans;
  std::vector<int64_t> deltas;  // each bucket's count less that of the bucket before

  // The lowest count, of values up to the first bound, is the zero bucket, whose threshold that bound is. The highest,
  // of values above all bounds, is the bucket next to them: as with classic buckets, a quantile there tells little more
  // than the highest bound. `counts` has at least one element.
  void Set(const HistogramScale::Native& scale, std::span<const uint64_t> counts);

 private:
  void AddBucket(int index, uint64_t count);

  int next_index_ = 0;  // after the last bucket
  uint64_t last_count_ = 0;
};

}  // namespace nccl_exporter
