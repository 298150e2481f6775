// SPDX-License-Identifier: Apache-2.0
#include "exporter/otlp/metrics_request.h"

#include <algorithm>
#include <array>
#include <functional>
#include <vector>

#include "exporter/exposition/protobuf_fields.h"
#include "exporter/exposition/protobuf_wire.h"
#include "exporter/otlp/histogram_point.h"

namespace nccl_exporter::exporter::otlp {
namespace {

using wire::AppendBytes;
using wire::AppendDouble;
using wire::AppendFixed64;
using wire::AppendTag;
using wire::AppendUint;
using wire::AppendVarint;

// Field numbers of a scrape: see proto/metric_family.proto.
enum FamilyField : uint32_t { kFamilyName = 1, kHelp = 2, kType = 3, kMetric = 4 };
enum FamilyType : uint64_t { kCounterType = 0, kGaugeType = 1, kHistogramType = 4 };
enum MetricField : uint32_t { kLabel = 1, kGaugeValue = 2, kCounterValue = 3, kHistogramValue = 7 };
enum ValueField : uint32_t { kValue = 1, kCounterCreated = 3, kHistogramCreated = 15 };

// Field numbers of OTLP: opentelemetry/proto/metrics/v1/metrics.proto of its specification.
enum RequestField : uint32_t { kResourceMetrics = 1, kResource = 1, kScopeMetrics = 2 };
enum ScopeField : uint32_t { kMetrics = 2 };
enum OtlpMetricField : uint32_t { kName = 1, kDescription = 2 };
enum DataField : uint32_t { kDataPoints = 1, kTemporality = 2, kIsMonotonic = 3 };
enum PointField : uint32_t { kStartTime = 2, kTime = 3, kAsDouble = 4 };
enum KeyValueField : uint32_t { kKey = 1, kKeyValue = 2, kStringValue = 1 };
constexpr uint64_t kCumulative = 2;
constexpr uint64_t kNoRecordedValue = 1;  // of the field of flags

void AppendAttribute(uint32_t field, std::string_view name, std::string_view value,
                     std::string& out) {
  std::string any, attribute;
  AppendBytes(kStringValue, value, any);
  AppendBytes(kKey, name, attribute);
  AppendBytes(kKeyValue, any, attribute);
  AppendBytes(field, attribute, out);
}

// The message in this field; empty where there is none.
std::string_view MessageIn(std::string_view message, uint32_t number) {
  std::string_view found;
  for (wire::Fields field(message); field.Next();) {
    if (field.number() == number) found = field.bytes();
  }
  return found;
}

// Nanoseconds since the epoch. 0: unknown.
uint64_t StartIn(std::string_view value, uint32_t created) {
  constexpr uint64_t kNsPerSecond = 1000000000, kMostSeconds = INT64_MAX / kNsPerSecond;
  const wire::Pair time = wire::PairIn(MessageIn(value, created));
  return std::min(time.first, kMostSeconds - 1) * kNsPerSecond +
         std::min(time.second, kNsPerSecond - 1);
}

double ValueIn(std::string_view value) {
  double number = 0;
  for (wire::Fields field(value); field.Next();) {
    if (field.number() == kValue) number = field.AsDouble();
  }
  return number;
}

}  // namespace

// As the kinds follow each other in the enum.
struct MetricsRequests::Fields {
  uint32_t scraped;    // of the value in a Metric of a scrape
  uint32_t created;    // of the start in that value; 0: it has none
  uint32_t data;       // of the message of this kind in a Metric of OTLP
  uint32_t attribute;  // of a data point
  uint32_t flags;
};

const MetricsRequests::Fields& MetricsRequests::FieldsOf(Kind kind) {
  static constexpr std::array<Fields, 4> kFields{
      {{.scraped = kGaugeValue, .created = 0, .data = 5, .attribute = 7, .flags = 8},
       {.scraped = kCounterValue,
        .created = kCounterCreated,
        .data = 7,
        .attribute = 7,
        .flags = 8},
       {.scraped = kHistogramValue,
        .created = kHistogramCreated,
        .data = 9,
        .attribute = 9,
        .flags = 10},
       {.scraped = kHistogramValue,
        .created = kHistogramCreated,
        .data = 10,
        .attribute = 1,
        .flags = 10}}};
  return kFields[static_cast<size_t>(kind)];
}

MetricsRequests::MetricsRequests(const Labels& resource, HistogramForm form) : form_(form) {
  for (const Label& label : resource) AppendAttribute(1, label.name, label.value, resource_);
}

std::optional<std::string> MetricsRequests::Make(std::string_view families, int64_t time_ns) {
  time_ns_ = static_cast<uint64_t>(time_ns);
  current_.clear();
  while (!families.empty()) {
    std::string_view message;
    if (!wire::TakeBytes(families, message) || !Take(message)) return std::nullopt;
  }
  for (const auto& [name, last] : last_) {
    Family& family = current_[name];
    if (family.points.empty()) {
      family.head = last.head;
      family.kind = last.kind;
    }
    if (family.kind == last.kind) AddStale(last, family);
  }
  std::string request = Request();
  last_ = std::move(current_);
  std::erase_if(last_, [](const auto& family) { return family.second.points.empty(); });
  return request;
}

bool MetricsRequests::Take(std::string_view message) {
  std::string_view name, help;
  uint64_t type = kCounterType;
  std::vector<std::string_view> metrics;
  wire::Fields field(message);
  while (field.Next()) {
    if (field.number() == kFamilyName) name = field.bytes();
    if (field.number() == kHelp) help = field.bytes();
    if (field.number() == kType) type = field.value();
    if (field.number() == kMetric) metrics.push_back(field.bytes());
  }
  if (!field.is_right()) return false;
  if (type != kCounterType && type != kGaugeType && type != kHistogramType) return true;
  Family family;
  AppendBytes(kName, name, family.head);
  AppendBytes(kDescription, help, family.head);
  family.kind = type == kCounterType ? Kind::kSum
                : type == kGaugeType ? Kind::kGauge
                                     : Kind::kHistogram;
  if (type == kHistogramType && form_ == HistogramForm::kExponential && !metrics.empty() &&
      HasNativeBuckets(MessageIn(metrics.front(), kHistogramValue)))
    family.kind = Kind::kExponential;
  for (const std::string_view metric : metrics) {
    if (!AddPoint(metric, family)) return false;
  }
  return metrics.empty() || current_.emplace(name, std::move(family)).second;
}

bool MetricsRequests::AddPoint(std::string_view metric, Family& family) const {
  const Fields& fields = FieldsOf(family.kind);
  std::string point;
  wire::Fields field(metric);
  while (field.Next()) {
    if (field.number() != kLabel) continue;
    const wire::Pair label = wire::PairIn(field.bytes());
    if (!label.is_right) return false;
    AppendAttribute(fields.attribute, label.first_bytes, label.second_bytes, point);
  }
  if (!field.is_right()) return false;
  const size_t series = std::hash<std::string_view>()(point);
  const std::string_view value = MessageIn(metric, fields.scraped);
  // A clock that was set back must not make a start later than the point.
  const uint64_t start_ns =
      fields.created == 0 ? 0 : std::min(StartIn(value, fields.created), time_ns_);
  if (start_ns != 0) AppendFixed64(kStartTime, start_ns, point);
  AppendFixed64(kTime, time_ns_, point);
  if (family.kind == Kind::kExponential) {
    if (!AppendExponential(value, point)) return false;
  } else if (family.kind == Kind::kHistogram) {
    if (!AppendExplicit(value, point)) return false;
  } else {
    AppendDouble(kAsDouble, ValueIn(value), point);
  }
  AppendBytes(kDataPoints, point, family.points);
  family.place_of[series] = {family.points.size() - point.size(), point.size()};
  return true;
}

// The later of two fields with one number holds: so the last point gets the new time.
void MetricsRequests::AddStale(const Family& last, Family& family) const {
  for (const auto& [series, place] : last.place_of) {
    if (family.place_of.contains(series)) continue;
    std::string point = last.points.substr(place.first, place.second);
    AppendFixed64(kTime, time_ns_, point);
    AppendUint(FieldsOf(last.kind).flags, kNoRecordedValue, point);
    AppendBytes(kDataPoints, point, family.stale);
  }
}

// Messages are preceded by their length, so that the lengths are summed first.
std::string MetricsRequests::Request() const {
  std::string metrics;
  for (const auto& [name, family] : current_) {
    std::string tail;
    if (family.kind != Kind::kGauge) AppendUint(kTemporality, kCumulative, tail);
    if (family.kind == Kind::kSum) AppendUint(kIsMonotonic, 1, tail);
    const size_t data_bytes = family.points.size() + family.stale.size() + tail.size();
    AppendTag(kMetrics, wire::Type::kBytes, metrics);
    AppendVarint(family.head.size() + 1 + wire::VarintBytes(data_bytes) + data_bytes, metrics);
    metrics += family.head;
    AppendTag(FieldsOf(family.kind).data, wire::Type::kBytes, metrics);
    AppendVarint(data_bytes, metrics);
    metrics += family.points;
    metrics += family.stale;
    metrics += tail;
  }
  std::string request, resource;
  AppendBytes(kResource, resource_, resource);
  AppendTag(kResourceMetrics, wire::Type::kBytes, request);
  AppendVarint(resource.size() + 1 + wire::VarintBytes(metrics.size()) + metrics.size(), request);
  request += resource;
  AppendBytes(kScopeMetrics, metrics, request);
  return request;
}

}  // namespace nccl_exporter::exporter::otlp
