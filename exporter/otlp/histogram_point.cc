// SPDX-License-Identifier: Apache-2.0
#include "exporter/otlp/histogram_point.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "exporter/exposition/protobuf_fields.h"
#include "exporter/exposition/protobuf_wire.h"

namespace nccl_exporter::exporter::otlp {
namespace {

using wire::AppendBytes;
using wire::AppendDouble;
using wire::AppendFixed64;
using wire::AppendSint;
using wire::AppendVarint;
using wire::Fields;

// Field numbers of Histogram in a scrape: see proto/metric_family.proto.
enum ScrapedField : uint32_t {
  kSampleCount = 1,
  kSampleSum = 2,
  kBucket = 3,
  kSchema = 5,
  kZeroThreshold = 6,
  kZeroCount = 7,
  kSpan = 12,
  kDelta = 13,
};

// Field numbers of the data points of both kinds, and of Buckets.
enum PointField : uint32_t { kCount = 4, kSum = 5 };
enum ExplicitField : uint32_t { kBucketCounts = 6, kExplicitBounds = 7 };
enum ExponentialField : uint32_t { kScale = 6, kZeros = 7, kPositive = 8, kThreshold = 14 };
enum BucketsField : uint32_t { kOffset = 1, kCounts = 2 };

// The daemon's finest scale has 240 buckets.
constexpr size_t kMostBuckets = 4096;

// The native buckets without gaps, as OTLP has them: the message Buckets, whose counts are added to
// `total`. Nothing if there are too many of them, or not as many as the spans want. Bucket i of a
// scrape is i - 1 of OTLP: both include their upper bound.
std::optional<std::string> Buckets(const std::vector<wire::Pair>& spans,
                                   const std::vector<int64_t>& deltas, uint64_t& total) {
  std::string counts, buckets;
  size_t filled = 0, next = 0;
  uint64_t count = 0;
  for (const wire::Pair& span : spans) {
    const int64_t offset = wire::FromZigZag(span.first);
    if (next == 0) {
      buckets.clear();
      AppendSint(kOffset, offset - 1, buckets);
    } else {
      if (offset < 0 || static_cast<uint64_t>(offset) > kMostBuckets - filled) return std::nullopt;
      filled += static_cast<size_t>(offset);
      counts.append(static_cast<size_t>(offset), '\0');
    }
    if (span.second > kMostBuckets - filled || span.second > deltas.size() - next)
      return std::nullopt;
    filled += span.second;
    for (uint64_t i = 0; i < span.second; ++i) {
      count += static_cast<uint64_t>(deltas[next++]);
      total += count;
      AppendVarint(count, counts);
    }
  }
  if (!counts.empty()) AppendBytes(kCounts, counts, buckets);
  return buckets;
}

}  // namespace

bool HasNativeBuckets(std::string_view histogram) {
  for (Fields field(histogram); field.Next();) {
    if (field.number() == kSchema) return true;
  }
  return false;
}

bool AppendExplicit(std::string_view histogram, std::string& point) {
  uint64_t total = 0, below = 0;
  double sum = 0, last_bound = -INFINITY;
  std::string counts, bounds;
  Fields field(histogram);
  while (field.Next()) {
    if (field.number() == kSampleCount) total = field.value();
    if (field.number() == kSampleSum) sum = field.AsDouble();
    if (field.number() != kBucket) continue;
    const wire::Pair bucket = wire::PairIn(field.bytes());
    const auto bound = std::bit_cast<double>(bucket.second);
    if (bound == INFINITY) continue;  // the sample count says it
    if (bucket.first < below || !(bound > last_bound)) return false;
    AppendFixed64(bucket.first - below, counts);
    AppendFixed64(bucket.second, bounds);
    below = bucket.first;
    last_bound = bound;
  }
  if (total < below || !field.is_right()) return false;
  AppendFixed64(total - below, counts);
  AppendFixed64(kCount, total, point);
  AppendDouble(kSum, sum, point);
  AppendBytes(kBucketCounts, counts, point);
  AppendBytes(kExplicitBounds, bounds, point);
  return true;
}

bool AppendExponential(std::string_view histogram, std::string& point) {
  uint64_t zeros = 0, total = 0;
  std::vector<wire::Pair> spans;
  std::vector<int64_t> deltas;
  std::string fields;
  Fields field(histogram);
  while (field.Next()) {
    if (field.number() == kSampleSum) AppendDouble(kSum, field.AsDouble(), fields);
    if (field.number() == kSchema) AppendSint(kScale, wire::FromZigZag(field.value()), fields);
    if (field.number() == kZeroThreshold) AppendDouble(kThreshold, field.AsDouble(), fields);
    if (field.number() == kZeroCount) zeros = field.value();
    if (field.number() == kSpan) spans.push_back(wire::PairIn(field.bytes()));
    if (field.number() == kDelta) deltas.push_back(wire::FromZigZag(field.value()));
  }
  const std::optional<std::string> buckets = Buckets(spans, deltas, total);
  if (!buckets || !field.is_right()) return false;
  AppendFixed64(kCount, total + zeros, point);
  point += fields;
  AppendFixed64(kZeros, zeros, point);
  AppendBytes(kPositive, *buckets, point);
  return true;
}

}  // namespace nccl_exporter::exporter::otlp
