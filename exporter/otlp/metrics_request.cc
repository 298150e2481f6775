// SPDX-License-Identifier: Apache-2.0
#include "exporter/otlp/metrics_request.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "exporter/exposition/protobuf_fields.h"
#include "exporter/exposition/protobuf_wire.h"

namespace nccl_exporter::exporter::otlp {
namespace {

using wire::AppendBytes;
using wire::AppendDouble;
using wire::AppendFixed64;
using wire::AppendSint;
using wire::AppendUint;
using wire::AppendVarint;

// Field numbers of OTLP: opentelemetry/proto/metrics/v1/metrics.proto of its specification.
enum RequestField : uint32_t { kResourceMetrics = 1, kResource = 1, kScopeMetrics = 2 };
enum ResourceField : uint32_t { kResourceAttribute = 1 };
enum MetricField : uint32_t { kMetrics = 2, kName = 1, kDescription = 2 };
enum DataField : uint32_t { kDataPoints = 1, kTemporality = 2, kIsMonotonic = 3 };
enum PointField : uint32_t { kStartTime = 2, kTime = 3, kAsDouble = 4, kCount = 4, kSum = 5 };
enum ExplicitField : uint32_t { kBucketCounts = 6, kExplicitBounds = 7 };
enum ExponentialField : uint32_t { kScale = 6, kZeros = 7, kPositive = 8, kThreshold = 14 };
enum BucketsField : uint32_t { kOffset = 1, kCounts = 2 };
enum KeyValueField : uint32_t { kKey = 1, kKeyValue = 2, kStringValue = 1 };
constexpr uint64_t kCumulative = 2;
constexpr uint64_t kNoRecordedValue = 1;  // of the field of flags

// Numbers of fields that differ by kind: of the data in a Metric, and in a point.
struct Kind {
  uint32_t data, attribute, flags;
  bool operator==(const Kind&) const = default;
};
constexpr Kind kGauge{.data = 5, .attribute = 7, .flags = 8},
    kCounter{.data = 7, .attribute = 7, .flags = 8},
    kExplicit{.data = 9, .attribute = 9, .flags = 10},
    kExponential{.data = 10, .attribute = 1, .flags = 10};

const Kind& KindOf(const PlainFamily& family, HistogramForm form) {
  if (family.type == MetricType::kCounter) return kCounter;
  if (family.type != MetricType::kHistogram) return kGauge;
  const bool is_native = std::ranges::all_of(
      family.samples, [](const PlainSample& sample) { return sample.native != nullptr; });
  return form == HistogramForm::kExponential && is_native ? kExponential : kExplicit;
}

void AppendAttribute(uint32_t field, const Label& label, std::string& out) {
  std::string any, attribute;
  AppendBytes(kStringValue, label.value, any);
  AppendBytes(kKey, label.name, attribute);
  AppendBytes(kKeyValue, any, attribute);
  AppendBytes(field, attribute, out);
}

void AppendExplicit(const PlainSample& sample, std::string& point) {
  std::string counts, bounds;
  uint64_t below = 0;
  for (const PlainBucket& bucket : sample.buckets) {
    AppendFixed64(bucket.count - std::exchange(below, bucket.count), counts);
    if (bucket.bound != INFINITY) AppendFixed64(std::bit_cast<uint64_t>(bucket.bound), bounds);
  }
  AppendFixed64(kCount, below, point);
  AppendDouble(kSum, sample.sum, point);
  AppendBytes(kBucketCounts, counts, point);
  AppendBytes(kExplicitBounds, bounds, point);
}

// OTLP has no gaps, and bucket i of a scrape is its i - 1: both include their upper bound. The
// count is the sum of the buckets, as receivers want it.
void AppendExponential(const PlainSample& sample, std::string& point) {
  const NativeHistogram& native = *sample.native;
  std::string counts, buckets;
  uint64_t total = native.zero_count, count = 0;
  auto delta = native.deltas.begin();
  for (const NativeHistogram::Span& span : native.spans) {
    if (&span == &native.spans.front())
      AppendSint(kOffset, int64_t{span.offset} - 1, buckets);
    else
      counts.append(static_cast<size_t>(span.offset), '\0');
    for (uint32_t i = 0; i < span.length; ++i) {
      count += static_cast<uint64_t>(*delta++);
      total += count;
      AppendVarint(count, counts);
    }
  }
  if (!counts.empty()) AppendBytes(kCounts, counts, buckets);
  AppendFixed64(kCount, total, point);
  AppendDouble(kSum, sample.sum, point);
  AppendSint(kScale, native.schema, point);
  AppendFixed64(kZeros, native.zero_count, point);
  AppendBytes(kPositive, buckets, point);
  AppendDouble(kThreshold, native.zero_threshold, point);
}

void AppendPoint(const PlainSample& sample, const Kind& kind, int64_t time_ns, bool is_gone,
                 std::string& data) {
  std::string point;
  for (const Label& label : sample.labels) AppendAttribute(kind.attribute, label, point);
  // A clock that was set back must not make a start later than the point.
  const int64_t start_ns = std::min(sample.created_realtime_ns, time_ns);
  if (kind != kGauge && start_ns > 0)
    AppendFixed64(kStartTime, static_cast<uint64_t>(start_ns), point);
  AppendFixed64(kTime, static_cast<uint64_t>(time_ns), point);
  if (kind == kExponential)
    AppendExponential(sample, point);
  else if (kind == kExplicit)
    AppendExplicit(sample, point);
  else
    AppendDouble(kAsDouble, sample.value, point);
  if (is_gone) AppendUint(kind.flags, kNoRecordedValue, point);
  AppendBytes(kDataPoints, point, data);
}

// `gone` are series that `family` had last.
void AppendMetric(const PlainFamily& family, const std::vector<PlainSample>& gone, const Kind& kind,
                  int64_t time_ns, std::string& metrics) {
  std::string data, metric;
  for (const PlainSample& sample : family.samples) AppendPoint(sample, kind, time_ns, false, data);
  for (const PlainSample& sample : gone) AppendPoint(sample, kind, time_ns, true, data);
  if (kind != kGauge) AppendUint(kTemporality, kCumulative, data);
  if (kind == kCounter) AppendUint(kIsMonotonic, 1, data);
  AppendBytes(kName, family.name, metric);
  AppendBytes(kDescription, family.help, metric);
  AppendBytes(kind.data, data, metric);
  AppendBytes(kMetrics, metric, metrics);
}

}  // namespace

MetricsRequests::MetricsRequests(const Labels& resource, HistogramForm form) : form_(form) {
  for (const Label& label : resource) AppendAttribute(kResourceAttribute, label, resource_);
}

std::string MetricsRequests::Make(std::vector<PlainFamily> families, int64_t time_ns) {
  std::map<std::string, PlainFamily> current;
  std::string metrics, resource_metrics, request;
  for (PlainFamily& family : families) {
    std::ranges::sort(family.samples, {}, &PlainSample::labels);
    if (!family.samples.empty()) current.try_emplace(family.name, std::move(family));
  }
  for (const auto& [name, family] : current) {
    std::vector<PlainSample> gone;
    const Kind& kind = KindOf(family, form_);
    const auto last = last_.find(name);
    if (last != last_.end() && kind == KindOf(last->second, form_))
      std::ranges::set_difference(last->second.samples, family.samples, std::back_inserter(gone),
                                  {}, &PlainSample::labels, &PlainSample::labels);
    AppendMetric(family, gone, kind, time_ns, metrics);
  }
  for (auto& [name, last] : last_) {
    if (current.contains(name)) continue;
    const Kind& kind = KindOf(last, form_);
    const std::vector<PlainSample> gone = std::exchange(last.samples, {});
    AppendMetric(last, gone, kind, time_ns, metrics);
  }
  last_ = std::move(current);
  AppendBytes(kResource, resource_, resource_metrics);
  AppendBytes(kScopeMetrics, metrics, resource_metrics);
  AppendBytes(kResourceMetrics, resource_metrics, request);
  return request;
}

}  // namespace nccl_exporter::exporter::otlp
