// SPDX-License-Identifier: Apache-2.0
// Merging of buckets and their runs.
#include "exporter/exposition/native_histogram.h"

#include <cmath>

namespace nccl_exporter {
namespace {

// The bucket that holds bucket `index` when the resolution is halved `halvings` times: the quotient rounded up, since
// buckets include their upper bound.
int MergedIndex(int index, int halvings) { return ((index - 1) >> halvings) + 1; }

// Calls visit(index, count) for each bucket that is not empty, in order.
template <typename Visit>
void ForEachBucket(const HistogramScale::Native& scale, std::span<const uint64_t> counts, int halvings, Visit visit) {
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

}  // namespace

void NativeHistogram::Set(const HistogramScale::Native& scale, std::span<const uint64_t> counts) {
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
  ForEachBucket(scale, counts, halvings, [this](int index, uint64_t count) { AddBucket(index, count); });
}

void NativeHistogram::AddBucket(int index, uint64_t count) {
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

}  // namespace nccl_exporter
