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
  // The bucket that holds bucket `index` when the resolution is halved `halvings` times: the
  // quotient rounded up, because buckets include their upper bound.
  static int MergedIndex(int index, int halvings) { return ((index - 1) >> halvings) + 1; }

  // Calls visit(index, count) for each bucket that is not empty, in order.
  template <typename Visit>
  static void ForEachBucket(const HistogramScale::Native& scale, std::span<const uint64_t> counts,
                            int halvings, Visit visit) {
    int merged = 0;
    uint64_t sum = 0;
    for (size_t i = 1; i < counts.size(); ++i) {
      if (counts[i] == 0) continue;
      const int index = MergedIndex(scale.first_bound + static_cast<int>(i), halvings);
      if (index != merged && sum != 0) {
        visit(merged, sum);
        sum = 0;
      }
      merged = index;
      sum += counts[i];
    }
    if (sum != 0) visit(merged, sum);
  }

  void AddBucket(int index, uint64_t count);

  int next_index_ = 0;  // after the last bucket
  uint64_t last_count_ = 0;
};

inline void NativeHistogram::Set(const HistogramScale::Native& scale,
                                 std::span<const uint64_t> counts) {
  spans.clear();
  deltas.clear();
  next_index_ = 0;
  last_count_ = 0;
  zero_count = counts.front();
  zero_threshold = std::exp2(std::ldexp(scale.first_bound, -scale.schema));
  int halvings = scale.halvings;
  for (;; ++halvings) {
    size_t buckets = 0;
    ForEachBucket(scale, counts, halvings, [&](int, uint64_t) { ++buckets; });
    if (buckets <= kNativeBucketLimit) break;
  }
  schema = scale.schema - halvings;
  ForEachBucket(scale, counts, halvings,
                [this](int index, uint64_t count) { AddBucket(index, count); });
}

inline void NativeHistogram::AddBucket(int index, uint64_t count) {
  const int gap = index - next_index_;
  if (spans.empty() || gap > kWidestGap) {
    spans.push_back({.offset = gap, .length = 0});
  } else {
    for (int i = 0; i < gap; ++i) {
      deltas.push_back(-static_cast<int64_t>(last_count_));
      last_count_ = 0;
    }
    spans.back().length += static_cast<uint32_t>(gap);
  }
  deltas.push_back(static_cast<int64_t>(count - last_count_));
  ++spans.back().length;
  last_count_ = count;
  next_index_ = index + 1;
}

}  // namespace nccl_exporter::exporter
