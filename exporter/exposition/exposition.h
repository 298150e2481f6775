// SPDX-License-Identifier: Apache-2.0
// Exposition, one scrape as plain data: families, series and shared label sets. One thread builds
// it, then encoders on any threads read it.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/metric_catalogue.h"

namespace nccl_exporter::exporter {

struct Label {
  std::string name;
  std::string value;

  auto operator<=>(const Label&) const = default;
};
using Labels = std::vector<Label>;

// Labels and their renderings. Thousands of series and many scrapes share one set, so it is
// rendered once.
// Immutable: any thread may read it.
class LabelSet {
 public:
  explicit LabelSet(Labels labels);

  const Labels& labels() const { return labels_; }
  const std::string& text() const { return text_; }          // a="b",c="d" without braces
  const std::string& protobuf() const { return protobuf_; }  // the label fields of a Metric message

 private:
  Labels labels_;
  std::string text_;
  std::string protobuf_;
};

using SharedLabels = std::shared_ptr<const LabelSet>;

// Index in Exposition::labels.
using LabelsId = uint32_t;
inline constexpr LabelsId kNoLabels = 0;

// Where the counts of a histogram lie on the axis of values: the same for all series of a family.
struct HistogramScale {
  // counts[0] holds values up to bound `first_bound` of the schema, counts[i] native bucket
  // first_bound + i, the last one values above all bounds.
  struct Native {
    int schema = 0;
    int first_bound = 0;
    int halvings = 0;  // of the resolution, before it is served
  };
  std::optional<Native> native;  // absent: the histogram has classic bounds only
  std::vector<double> bounds;    // classic upper bounds, ascending, without +Inf
  std::vector<uint32_t> ends;    // counts[0] to counts[ends[i] - 1] are values up to bounds[i]
};

struct Series {
  LabelsId group_labels = kNoLabels;     // shared by all series of one communicator or one process
  LabelsId variable_labels = kNoLabels;  // distinguish the series of one family within this group
  double value = 0;                      // of a histogram: the sum
  std::span<const uint64_t> counts;      // of a histogram: not cumulative, at full resolution
  // Start of a counter or a histogram: since when it counts, nanoseconds since the epoch. 0: since
  // the daemon's start.
  int64_t created_realtime_ns = 0;
};

struct Family {
  std::string name;  // as in the catalogue: counters end in _total, info metrics in _info
  std::string help;
  std::string unit;
  MetricType type = MetricType::kGauge;
  HistogramScale scale;   // of histograms
  bool is_served = true;  // else it takes no series
  std::vector<Series> series;
};

struct Exposition {
  LabelsId Add(SharedLabels set) {
    labels.push_back(std::move(set));
    return static_cast<LabelsId>(labels.size() - 1);
  }
  LabelsId Add(Labels set) { return Add(std::make_shared<const LabelSet>(std::move(set))); }

  std::vector<SharedLabels> labels{
      std::make_shared<const LabelSet>(Labels{})};  // labels[kNoLabels] is the empty set
  std::vector<Family> families;                     // those without series are not served
  std::vector<std::shared_ptr<const void>> owners;  // of the memory that Series::counts point to
  int64_t created_realtime_ns = 0;  // of series that have no time of their own; 0: unknown
};

// Lines that a series becomes in a text format, and samples that Prometheus stores for it.
inline size_t SamplesPerSeries(const Family& family) {
  constexpr size_t kInfinitySumAndCount = 3;
  return family.type == MetricType::kHistogram ? family.scale.bounds.size() + kInfinitySumAndCount
                                               : 1;
}

// A family's name without the suffix _total or _info of its samples.
std::string_view SampleFamilyName(const Family& family);

// Whether a format with units may state this one. OpenMetrics requires that the family's name ends
// in it.
bool NameEndsInUnit(std::string_view name, std::string_view unit);

// Appends `text` as both text formats write it in HELP lines and label values: with backslash and
// line feed escaped, and double quotes too if `escape_quotes`.
void AppendEscaped(std::string_view text, bool escape_quotes, std::string& out);

}  // namespace nccl_exporter::exporter
