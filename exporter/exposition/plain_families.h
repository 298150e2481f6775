// SPDX-License-Identifier: Apache-2.0
// ParseFamilies(), the protobuf format of a scrape as plain data. Pure functions of untrusted
// bytes, for any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/exposition/exposition.h"
#include "exporter/exposition/native_histogram.h"

namespace nccl_exporter::exporter {

// The observations up to `bound`.
struct PlainBucket {
  double bound;
  uint64_t count;
};

struct PlainSample {
  Labels labels;
  double value = 0;                       // of a histogram: the number of its observations
  double sum = 0;                         // of a histogram
  int64_t created_realtime_ns = 0;        // 0: not known
  std::vector<PlainBucket> buckets = {};  // of a histogram: ascending; the last one has all
  std::shared_ptr<const NativeHistogram> native = nullptr;  // of a histogram, where it is there
};

struct PlainFamily {
  std::string name;
  std::string help;
  MetricType type = MetricType::kCounter;
  std::vector<PlainSample> samples;
};

// Buckets of a native histogram, those between its spans included. A longer one is not understood:
// the daemon's finest scale has 240.
inline constexpr uint64_t kMostNativeBuckets = 4096;

// Messages MetricFamily, each after its length (proto/metric_family.proto). Nothing if the bytes
// are none, a text is no UTF-8, a histogram has buckets that are none, the type of a family is
// another, or there are more than `most_parts` families, samples, labels and buckets.
std::optional<std::vector<PlainFamily>> ParseFamilies(std::string_view bytes,
                                                      size_t most_parts = SIZE_MAX);

// Appends the families as they are.
void AddFamilies(const std::vector<PlainFamily>& families, Exposition& exposition);

// Whether it may name a family, or a label, beside those of the daemon: small letters, digits and
// _, no beginning with __, and of labels none that Prometheus gives to each series.
bool IsPlainName(std::string_view name);
bool IsPlainLabelName(std::string_view name);

// The value of a label; null if there is none.
const std::string* LabelOf(const Labels& labels, std::string_view name);

}  // namespace nccl_exporter::exporter
