// SPDX-License-Identifier: Apache-2.0
// Field numbers of a scrape in the protobuf format, by message: proto/metric_family.proto. For its
// encoder and its reader.
#pragma once

#include <cstdint>

namespace nccl_exporter::exporter::family_field {

enum FamilyField : uint32_t { kName = 1, kHelp = 2, kType = 3, kMetric = 4, kUnit = 5 };
enum TypeNumber : uint32_t { kCounterType = 0, kGaugeType = 1, kHistogramType = 4 };
enum MetricField : uint32_t { kLabel = 1, kGauge = 2, kCounter = 3, kHistogram = 7 };
enum ValueField : uint32_t { kValue = 1, kCounterCreated = 3 };
enum TimestampField : uint32_t { kSeconds = 1, kNanos = 2 };
enum BucketField : uint32_t { kCumulativeCount = 1, kUpperBound = 2 };
enum SpanField : uint32_t { kOffset = 1, kLength = 2 };
enum HistogramField : uint32_t {
  kSampleCount = 1,
  kSampleSum = 2,
  kBucket = 3,
  kSchema = 5,
  kZeroThreshold = 6,
  kZeroCount = 7,
  kPositiveSpan = 12,
  kPositiveDelta = 13,
  kHistogramCreated = 15,
};

}  // namespace nccl_exporter::exporter::family_field
