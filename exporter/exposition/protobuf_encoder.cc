// SPDX-License-Identifier: Apache-2.0
// EncodeProtobuf(). It writes the innermost message first, because a message is preceded by its
// length.
#include <cstdint>
#include <string>

#include "exporter/exposition/encoder.h"
#include "exporter/exposition/family_fields.h"
#include "exporter/exposition/native_histogram.h"
#include "exporter/exposition/protobuf_wire.h"

namespace nccl_exporter::exporter {
namespace {

using wire::AppendBytes;
using wire::AppendDouble;
using wire::AppendSint;
using wire::AppendTag;
using wire::AppendUint;
using wire::AppendVarint;

using namespace family_field;

uint64_t NumberOf(MetricType type) {
  if (type == MetricType::kCounter) return kCounterType;
  return type == MetricType::kHistogram ? kHistogramType : kGaugeType;
}

// Encodes one family after the other; the scratch strings keep their memory.
class FamilyMessages {
 public:
  FamilyMessages(const Exposition& exposition, std::string& out)
      : exposition_(exposition), out_(out) {}

  void Append(const Family& family) {
    family_.clear();
    AppendBytes(kName, family.name, family_);
    AppendBytes(kHelp, family.help, family_);
    AppendUint(kType, NumberOf(family.type), family_);
    for (const Series& series : family.series) {
      value_.clear();
      AppendMetric(series, AppendValue(family, series));
    }
    if (NameEndsInUnit(SampleFamilyName(family), family.unit))
      AppendBytes(kUnit, family.unit, family_);
    AppendVarint(family_.size(), out_);
    out_ += family_;
  }

 private:
  // Appends the metric of a series whose value_ is the message of this field.
  void AppendMetric(const Series& series, MetricField field) {
    const std::string& group = exposition_.labels[series.group_labels]->protobuf();
    const std::string& variable = exposition_.labels[series.variable_labels]->protobuf();
    const size_t value_field_bytes = 1 + wire::VarintBytes(value_.size()) + value_.size();
    AppendTag(kMetric, wire::Type::kBytes, family_);
    AppendVarint(group.size() + variable.size() + value_field_bytes, family_);
    family_ += group;
    family_ += variable;
    AppendBytes(field, value_, family_);
  }

  MetricField AppendValue(const Family& family, const Series& series) {
    if (family.type == MetricType::kHistogram) {
      AppendHistogram(family.scale, series);
      return kHistogram;
    }
    AppendDouble(kValue, series.value, value_);
    if (family.type != MetricType::kCounter) return kGauge;
    AppendCreated(kCounterCreated, series);
    return kCounter;
  }

  void AppendCreated(uint32_t field, const Series& series) {
    constexpr int64_t kNsPerSecond = 1000000000;
    const int64_t created_ns = series.created_realtime_ns != 0 ? series.created_realtime_ns
                                                               : exposition_.created_realtime_ns;
    if (created_ns <= 0) return;
    part_.clear();
    AppendUint(kSeconds, static_cast<uint64_t>(created_ns / kNsPerSecond), part_);
    AppendUint(kNanos, static_cast<uint64_t>(created_ns % kNsPerSecond), part_);
    AppendBytes(field, part_, value_);
  }

  void AppendHistogram(const HistogramScale& scale, const Series& series) {
    uint64_t total = 0;
    for (const uint64_t count : series.counts) total += count;
    AppendUint(kSampleCount, total, value_);
    AppendDouble(kSampleSum, series.value, value_);
    AppendClassic(scale, series);
    if (scale.native) AppendNative(*scale.native, series);
    AppendCreated(kHistogramCreated, series);
  }

  // Without the bucket of +Inf: readers know it by the sample count.
  void AppendClassic(const HistogramScale& scale, const Series& series) {
    uint64_t count = 0;
    size_t next = 0;
    for (size_t i = 0; i < scale.bounds.size(); ++i) {
      for (; next < scale.ends[i]; ++next) count += series.counts[next];
      part_.clear();
      AppendUint(kCumulativeCount, count, part_);
      AppendDouble(kUpperBound, scale.bounds[i], part_);
      AppendBytes(kBucket, part_, value_);
    }
  }

  void AppendNative(const HistogramScale::Native& scale, const Series& series) {
    native_.Set(scale, series.counts);
    AppendSint(kSchema, native_.schema, value_);
    AppendDouble(kZeroThreshold, native_.zero_threshold, value_);
    AppendUint(kZeroCount, native_.zero_count, value_);
    // Without any span a histogram would be taken for a classic one.
    if (native_.spans.empty()) native_.spans.push_back({});
    for (const NativeHistogram::Span& span : native_.spans) {
      part_.clear();
      AppendSint(kOffset, span.offset, part_);
      AppendUint(kLength, span.length, part_);
      AppendBytes(kPositiveSpan, part_, value_);
    }
    for (const int64_t delta : native_.deltas) AppendSint(kPositiveDelta, delta, value_);
  }

  const Exposition& exposition_;
  std::string& out_;
  std::string family_;  // MetricFamily
  std::string value_;   // Counter, Gauge or Histogram
  std::string part_;    // message inside a value
  NativeHistogram native_;
};

}  // namespace

void EncodeProtobuf(const Exposition& exposition, std::string& out) {
  FamilyMessages messages(exposition, out);
  for (const Family& family : exposition.families) {
    if (!family.series.empty()) messages.Append(family);
  }
}

}  // namespace nccl_exporter::exporter
