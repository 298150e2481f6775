// SPDX-License-Identifier: Apache-2.0
// NativeHistogram, the counts of a series as Prometheus has them: sparse buckets as spans and
// deltas. For one thread per object.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "exporter/exposition/exposition.h"

namespace nccl_exporter::exporter {

// Maximum of buckets per histogram, as Prometheus' client libraries advise. A histogram that fills
// more is served at half the resolution, or a quarter, and so on. Counts only grow, so a histogram
// never returns to the finer resolution.
inline constexpr size_t kNativeBucketLimit = 160;

// Maximum of empty buckets within a span. So many counts of 0 take fewer bytes than another span.
inline constexpr int kWidestGap = 2;

// One object can be filled again and again: the vectors keep their memory.
struct NativeHistogram {
  struct Span {
    // Index of the first bucket in the first span. In other spans: the number of empty buckets
    // since the span before.
    int32_t offset = 0;
    uint32_t length = 0;

    bool operator==(const Span&) const = default;
  };

  int schema = 0;
  double zero_threshold = 0;
  uint64_t zero_count = 0;
  std::vector<Span> spans;
  std::vector<int64_t> deltas;  // the count of each bucket minus that of the bucket before

  // The lowest count, of values up to the first bound, becomes the zero bucket with that bound as
  // its threshold. The highest, of values above all bounds, becomes the bucket above the last
  // bound: as with classic buckets, a quantile there means little more than the last bound.
  // `counts` must have at least one element.
  void Set(const HistogramScale::Native& scale, std::span<const uint64_t> counts);

 private:
  struct Bucket {
    int index;
    uint64_t count;
  };

  void Halve();  // the resolution

  std::vector<Bucket> buckets_;  // those that are not empty, in order
};

// An index is halved and rounded up, because buckets include their upper bound.
inline void NativeHistogram::Halve() {
  --schema;
  size_t kept = 0;
  for (const Bucket bucket : buckets_) {
    const int index = ((bucket.index - 1) >> 1) + 1;
    if (kept != 0 && buckets_[kept - 1].index == index) {
      buckets_[kept - 1].count += bucket.count;
    } else {
      buckets_[kept++] = {index, bucket.count};
    }
  }
  buckets_.resize(kept);
}

inline void NativeHistogram::Set(const HistogramScale::Native& scale,
                                 std::span<const uint64_t> counts) {
  zero_count = counts.front();
  zero_threshold = std::exp2(std::ldexp(scale.first_bound, -scale.schema));
  buckets_.clear();
  for (size_t i = 1; i < counts.size(); ++i) {
    if (counts[i] != 0) buckets_.push_back({scale.first_bound + static_cast<int>(i), counts[i]});
  }
  schema = scale.schema;
  while (schema > scale.schema - scale.halvings || buckets_.size() > kNativeBucketLimit) Halve();
  spans.clear();
  deltas.clear();
  int next_index = 0;  // after the last bucket
  uint64_t last_count = 0;
  for (const auto& [index, count] : buckets_) {
    const int gap = index - next_index;
    if (spans.empty() || gap > kWidestGap) {
      spans.push_back({.offset = gap, .length = 0});
    } else {
      for (int i = 0; i < gap; ++i) {
        deltas.push_back(-static_cast<int64_t>(last_count));
        last_count = 0;
      }
      spans.back().length += static_cast<uint32_t>(gap);
    }
    deltas.push_back(static_cast<int64_t>(count - last_count));
    ++spans.back().length;
    last_count = count;
    next_index = index + 1;
  }
}

}  // namespace nccl_exporter::exporter
