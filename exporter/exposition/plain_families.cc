// SPDX-License-Identifier: Apache-2.0
#include "exporter/exposition/plain_families.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "exporter/exposition/family_fields.h"
#include "exporter/exposition/protobuf_fields.h"
#include "exporter/text/utf8.h"

namespace nccl_exporter::exporter {
namespace {

using namespace family_field;
using wire::Fields;
using wire::FromZigZag;
using wire::Pair;
using wire::PairIn;

bool TakeText(std::string_view bytes, std::string& text) {
  text = bytes;
  return ValidUtf8(bytes) == bytes;
}

bool TakeCreated(std::string_view message, PlainSample& sample) {
  constexpr int64_t kNs = 1'000'000'000, kMostSeconds = INT64_MAX / kNs - 1;
  const Pair time = PairIn(message);
  const auto seconds = static_cast<int64_t>(time.first), ns = static_cast<int64_t>(time.second);
  sample.created_realtime_ns =
      std::clamp<int64_t>(seconds, 0, kMostSeconds) * kNs + std::clamp<int64_t>(ns, 0, kNs - 1);
  return time.is_right;
}

// Gauge or Counter.
bool TakeValue(std::string_view message, PlainSample& sample) {
  Fields field(message);
  bool is_right = true;
  while (is_right && field.Next()) {
    if (field.number() == kValue) sample.value = field.AsDouble();
    if (field.number() == kCounterCreated) is_right = TakeCreated(field.bytes(), sample);
  }
  return is_right && field.is_right();
}

bool TakeSpan(std::string_view message, NativeHistogram& native) {
  const Pair span = PairIn(message);
  const int64_t offset = FromZigZag(span.first);
  native.spans.push_back(
      {.offset = static_cast<int32_t>(offset), .length = static_cast<uint32_t>(span.second)});
  return span.is_right && std::in_range<int32_t>(offset) && std::in_range<uint32_t>(span.second);
}

bool AreBuckets(const std::vector<PlainBucket>& buckets) {
  double bound = -INFINITY;
  uint64_t count = 0;
  return std::ranges::all_of(buckets, [&](const PlainBucket& bucket) {
    return bucket.bound > std::exchange(bound, bucket.bound) &&
           bucket.count >= std::exchange(count, bucket.count);
  });
}

bool AreBuckets(const NativeHistogram& native) {
  uint64_t filled = 0, width = 0;
  for (const NativeHistogram::Span& span : native.spans) {
    const bool is_first = &span == &native.spans.front();
    if (!is_first && span.offset < 0) return false;
    width += (is_first ? 0 : static_cast<uint64_t>(span.offset)) + span.length;
    filled += span.length;
    if (width > kMostNativeBuckets) return false;
  }
  return filled == native.deltas.size();
}

bool TakeType(uint64_t number, MetricType& type) {
  type = number == kCounterType ? MetricType::kCounter
         : number == kGaugeType ? MetricType::kGauge
                                : MetricType::kHistogram;
  return number == kCounterType || number == kGaugeType || number == kHistogramType;
}

// Takes families, and counts their parts.
class Reader {
 public:
  explicit Reader(size_t most_parts) : left_(most_parts) {}

  bool TakeFamily(std::string_view message, PlainFamily& family) {
    Fields field(message);
    bool is_right = Count();
    while (is_right && field.Next()) {
      const uint32_t number = field.number();
      if (number == kName) is_right = TakeText(field.bytes(), family.name);
      if (number == kHelp) is_right = TakeText(field.bytes(), family.help);
      if (number == kType) is_right = TakeType(field.value(), family.type);
      if (number == kMetric) is_right = TakeMetric(field.bytes(), family.samples.emplace_back());
    }
    return is_right && field.is_right();
  }

 private:
  bool Count() { return left_-- != 0; }

  bool TakeMetric(std::string_view message, PlainSample& sample) {
    Fields field(message);
    bool is_right = Count();
    while (is_right && field.Next()) {
      const uint32_t number = field.number();
      if (number == kLabel) is_right = TakeLabel(field.bytes(), sample.labels.emplace_back());
      if (number == kHistogram) is_right = TakeHistogram(field.bytes(), sample);
      if (number == kGauge || number == kCounter) is_right = TakeValue(field.bytes(), sample);
    }
    return is_right && field.is_right();
  }

  bool TakeLabel(std::string_view message, Label& label) {
    const Pair pair = PairIn(message);
    return Count() && pair.is_right && TakeText(pair.first_bytes, label.name) &&
           TakeText(pair.second_bytes, label.value);
  }

  bool TakeHistogram(std::string_view message, PlainSample& sample) {
    NativeHistogram native;
    uint64_t count = 0;
    bool is_native = false, is_right = true;
    Fields field(message);
    while (is_right && field.Next()) {
      const uint32_t number = field.number();
      if (number == kBucket || number == kPositiveSpan || number == kPositiveDelta)
        is_right = Count();
      if (number == kSampleCount) count = field.value();
      if (number == kSampleSum) sample.sum = field.AsDouble();
      if (number == kHistogramCreated) is_right = TakeCreated(field.bytes(), sample);
      if (number == kBucket) {
        const Pair bucket = PairIn(field.bytes());
        is_right = is_right && bucket.is_right;
        const auto bound = std::bit_cast<double>(bucket.second);
        if (bound != INFINITY) sample.buckets.push_back({.bound = bound, .count = bucket.first});
      }
      is_native = is_native || number == kSchema;
      if (number == kSchema) native.schema = static_cast<int>(FromZigZag(field.value()));
      if (number == kZeroThreshold) native.zero_threshold = field.AsDouble();
      if (number == kZeroCount) native.zero_count = field.value();
      if (number == kPositiveSpan) is_right = is_right && TakeSpan(field.bytes(), native);
      if (number == kPositiveDelta) native.deltas.push_back(FromZigZag(field.value()));
    }
    sample.value = static_cast<double>(count);
    sample.buckets.push_back({.bound = INFINITY, .count = count});
    is_right = is_right && field.is_right() && AreBuckets(sample.buckets) && AreBuckets(native);
    if (is_native) sample.native = std::make_shared<NativeHistogram>(std::move(native));
    return is_right;
  }

  size_t left_;
};

}  // namespace

std::optional<std::vector<PlainFamily>> ParseFamilies(std::string_view bytes, size_t most_parts) {
  Reader reader(most_parts);
  std::vector<PlainFamily> families;
  while (!bytes.empty()) {
    std::string_view message;
    if (!wire::TakeBytes(bytes, message) || !reader.TakeFamily(message, families.emplace_back()))
      return std::nullopt;
  }
  return families;
}

void AddFamilies(const std::vector<PlainFamily>& families, Exposition& exposition) {
  for (const PlainFamily& family : families) {
    Family& added = exposition.families.emplace_back(Family{.name = family.name,
                                                            .help = family.help,
                                                            .unit = "",
                                                            .type = family.type,
                                                            .scale = {},
                                                            .series = {}});
    for (const PlainSample& sample : family.samples)
      added.series.push_back({.group_labels = exposition.Add(sample.labels),
                              .value = sample.value,
                              .counts = {},
                              .created_realtime_ns = sample.created_realtime_ns});
  }
}

bool IsPlainName(std::string_view name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; };
  return !name.empty() && is_letter(name.front()) && !name.starts_with("__") &&
         std::ranges::all_of(name, [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

bool IsPlainLabelName(std::string_view name) {
  return IsPlainName(name) && name != "job" && name != "instance";
}

const std::string* LabelOf(const Labels& labels, std::string_view name) {
  const auto label = std::ranges::find(labels, name, &Label::name);
  return label == labels.end() ? nullptr : &label->value;
}

}  // namespace nccl_exporter::exporter
