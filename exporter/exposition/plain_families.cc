// SPDX-License-Identifier: Apache-2.0
#include "exporter/exposition/plain_families.h"

#include <algorithm>

#include "exporter/exposition/protobuf_fields.h"
#include "exporter/text/utf8.h"

namespace nccl_exporter::exporter {
namespace {

// Numbers of fields and types: proto/metric_family.proto.
constexpr uint64_t kCounter = 0, kGauge = 1, kHistogram = 4;

bool TakeText(std::string_view bytes, std::string& text) {
  text = bytes;
  return ValidUtf8(bytes) == bytes;
}

bool TakeCreated(std::string_view message, PlainSample& sample) {
  constexpr int64_t kNs = 1'000'000'000, kMostSeconds = INT64_MAX / kNs - 1;
  wire::Fields field(message);
  while (field.Next()) {
    const auto value = static_cast<int64_t>(field.value());
    if (field.number() == 1)
      sample.created_realtime_ns += std::clamp<int64_t>(value, 0, kMostSeconds) * kNs;
    if (field.number() == 2) sample.created_realtime_ns += std::clamp<int64_t>(value, 0, kNs - 1);
  }
  return field.is_right();
}

// Gauge, Counter or Histogram.
bool TakeValue(std::string_view message, MetricType type, PlainSample& sample) {
  const bool is_histogram = type == MetricType::kHistogram;
  const uint32_t created = is_histogram ? 15 : 3;
  wire::Fields field(message);
  bool is_right = true;
  while (is_right && field.Next()) {
    if (field.number() == 1)
      sample.value = is_histogram ? static_cast<double>(field.value()) : field.AsDouble();
    if (field.number() == 2 && is_histogram) sample.sum = field.AsDouble();
    if (field.number() == created) is_right = TakeCreated(field.bytes(), sample);
  }
  return is_right && field.is_right();
}

bool TakeLabel(std::string_view message, Labels& labels) {
  Label label;
  wire::Fields field(message);
  bool is_right = true;
  while (is_right && field.Next()) {
    if (field.number() == 1) is_right = TakeText(field.bytes(), label.name);
    if (field.number() == 2) is_right = TakeText(field.bytes(), label.value);
  }
  labels.push_back(std::move(label));
  return is_right && field.is_right();
}

bool TakeMetric(std::string_view message, PlainFamily& family) {
  PlainSample& sample = family.samples.emplace_back();
  wire::Fields field(message);
  bool is_right = true;
  while (is_right && field.Next()) {
    const uint32_t number = field.number();
    if (number == 1) is_right = TakeLabel(field.bytes(), sample.labels);
    if (number == 2 || number == 3 || number == 7)
      is_right = TakeValue(field.bytes(), family.type, sample);
  }
  return is_right && field.is_right();
}

bool TakeType(uint64_t number, MetricType& type) {
  type = number == kCounter ? MetricType::kCounter
         : number == kGauge ? MetricType::kGauge
                            : MetricType::kHistogram;
  return number == kCounter || number == kGauge || number == kHistogram;
}

// The type comes before the metrics, as both encoders of Prometheus write it.
bool TakeFamily(std::string_view message, PlainFamily& family) {
  wire::Fields field(message);
  bool is_right = true;
  while (is_right && field.Next()) {
    const uint32_t number = field.number();
    if (number == 1) is_right = TakeText(field.bytes(), family.name);
    if (number == 2) is_right = TakeText(field.bytes(), family.help);
    if (number == 3) is_right = TakeType(field.value(), family.type);
    if (number == 4) is_right = TakeMetric(field.bytes(), family);
  }
  return is_right && field.is_right();
}

}  // namespace

std::optional<std::vector<PlainFamily>> ParseFamilies(std::string_view bytes) {
  std::vector<PlainFamily> families;
  while (!bytes.empty()) {
    std::string_view message;
    if (!wire::TakeBytes(bytes, message) || !TakeFamily(message, families.emplace_back()))
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
