// SPDX-License-Identifier: Apache-2.0
// All three encoders carry the same samples of a snapshot.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "exporter/exposition/encoder.h"
#include "exporter/exposition/exposition.h"
#include "exporter/series/metric_filter.h"
#include "exporter/series/snapshot_families.h"
#include "exporter/testing/decoded_families.h"
#include "exporter/testing/example_snapshot.h"

namespace nccl_exporter::exporter {
namespace {

// Values by name and labels as text writes them. Bounds are numbers here, because the formats spell
// them differently.
using Samples = std::map<std::string, double>;

std::string Exactly(double value) {
  std::ostringstream text;
  text << std::hexfloat << value;
  return text.str();
}

void Insert(const std::string& series, double value, Samples& samples) {
  EXPECT_TRUE(samples.try_emplace(series, value).second) << "twice: " << series;
}

Samples SamplesOfText(const std::string& body) {
  Samples samples;
  std::istringstream lines(body);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('#')) continue;
    const size_t blank = line.rfind(' ');
    std::string series = line.substr(0, blank);
    const std::string before_bound = "le=\"";
    const size_t at = series.rfind(before_bound);
    if (at != std::string::npos) {
      const size_t from = at + before_bound.size();
      const size_t bytes = series.find('"', from) - from;
      series.replace(from, bytes,
                     Exactly(std::strtod(series.substr(from, bytes).c_str(), nullptr)));
    }
    char* end = nullptr;
    const double value = std::strtod(line.c_str() + blank + 1, &end);
    EXPECT_EQ(*end, '\0') << line;
    Insert(series, value, samples);
  }
  return samples;
}

class SamplesOfMessages {
 public:
  explicit SamplesOfMessages(const std::string& body) {
    for (const decoded::MetricFamily& family : DecodedFamilies(body)) {
      for (const decoded::Metric& metric : family.metric()) Add(family, metric);
    }
  }
  const Samples& samples() const { return samples_; }

 private:
  void Add(const decoded::MetricFamily& family, const decoded::Metric& metric) {
    std::string labels;
    for (const decoded::LabelPair& label : metric.label()) {
      labels += (labels.empty() ? "" : ",") + label.name() + "=\"";
      AppendEscaped(label.value(), true, labels);
      labels += '"';
    }
    const std::string in_braces = labels.empty() ? "" : '{' + labels + '}';
    if (metric.has_counter()) Insert(family.name() + in_braces, metric.counter().value(), samples_);
    if (metric.has_gauge()) Insert(family.name() + in_braces, metric.gauge().value(), samples_);
    if (!metric.has_histogram()) return;
    const decoded::Histogram& histogram = metric.histogram();
    const std::string before_bound =
        family.name() + "_bucket{" + labels + (labels.empty() ? "" : ",") + "le=\"";
    for (const decoded::Bucket& bucket : histogram.bucket()) {
      Insert(before_bound + Exactly(bucket.upper_bound()) + "\"}",
             static_cast<double>(bucket.cumulative_count()), samples_);
    }
    const auto count = static_cast<double>(histogram.sample_count());
    Insert(before_bound + Exactly(std::numeric_limits<double>::infinity()) + "\"}", count,
           samples_);
    Insert(family.name() + "_sum" + in_braces, histogram.sample_sum(), samples_);
    Insert(family.name() + "_count" + in_braces, count, samples_);
    ExpectTheNativePartToAgree(histogram, family.name() + in_braces);
  }

  // Every classic bound is a native one, so both parts count the same values below it.
  static void ExpectTheNativePartToAgree(const decoded::Histogram& histogram,
                                         const std::string& series) {
    ASSERT_EQ(histogram.schema(), 3) << series;
    const std::map<int, uint64_t> buckets = NativeBuckets(histogram);
    const auto count_up_to = [&](double bound) {
      uint64_t count = histogram.zero_count();
      for (const auto& [index, more] : buckets) {
        if (std::exp2(index / 8.0) <= bound * (1 + 1e-9)) count += more;
      }
      return count;
    };
    EXPECT_EQ(count_up_to(std::numeric_limits<double>::infinity()), histogram.sample_count())
        << series;
    for (const decoded::Bucket& bucket : histogram.bucket()) {
      EXPECT_EQ(count_up_to(bucket.upper_bound()), bucket.cumulative_count())
          << series << ' ' << bucket.upper_bound();
    }
  }

  Samples samples_;
};

std::string Encoded(Format format, const Exposition& exposition) {
  std::string body;
  Encode(format, exposition, body);
  return body;
}

void ExpectTheSameNumbers(const MetricFilter& filter) {
  for (const auto& book :
       {ExampleBook(),
        AssumedBook(NodeOfShape({.communicators = 3, .point_to_point = 1, .collectives = 4}))}) {
    Exposition exposition = ExpositionOfCatalogue(filter);
    SeriesMemory memory(filter);
    AddSnapshotFamilies(book, kSeriesLimit, memory, exposition);
    const Samples text = SamplesOfText(Encoded(Format::kText, exposition));
    const Samples openmetrics = SamplesOfText(Encoded(Format::kOpenMetrics, exposition));
    const SamplesOfMessages messages(Encoded(Format::kProtobuf, exposition));
    EXPECT_GT(text.size(), 100u);
    EXPECT_EQ(text, openmetrics);
    EXPECT_EQ(text, messages.samples());
  }
}

TEST(FormatsTest, CarryTheSameNumbers) { ExpectTheSameNumbers(MetricFilter()); }

TEST(FormatsTest, CarryTheSameNumbersWithDurationsBySize) {
  MetricFilter filter;
  filter.SplitDurations();
  ExpectTheSameNumbers(filter);
}

const std::set<std::string> kCountedByTheDaemon{
    "nccl_collective_arrival_lateness_seconds_total", "nccl_collective_last_arrivals_total",
    "nccl_exporter_user_segment_errors_total"};
// They count since the daemon knows them: exporter/testing's snapshot says when.
const std::set<std::string> kCountedSinceKnown{"nccl_rank_steps_total",
                                               "nccl_rank_step_wait_seconds_total"};

TEST(FormatsTest, ProtobufTellsSinceWhenEveryCounterAndHistogramCounts) {
  Exposition exposition = ExpositionOfCatalogue();
  exposition.created_realtime_ns = 5000000000;
  SeriesMemory memory;
  AddSnapshotFamilies(ExampleBook(), kSeriesLimit, memory, exposition);
  for (const decoded::MetricFamily& family :
       DecodedFamilies(Encoded(Format::kProtobuf, exposition))) {
    for (const decoded::Metric& metric : family.metric()) {
      if (metric.has_gauge()) continue;
      const decoded::Timestamp& created = metric.has_counter()
                                              ? metric.counter().created_timestamp()
                                              : metric.histogram().created_timestamp();
      // One label: state or reason of the daemon's own, which also compares arrivals and counts
      // errors by user.
      const bool is_of_a_rank =
          metric.label_size() > 1 && !kCountedByTheDaemon.contains(family.name());
      // Processes start at 1700000000, their communicators a second later.
      const bool is_of_a_process = metric.label_size() > 0 && metric.label(0).name() == "pid";
      // This sum starts with the scrape.
      const bool is_of_others = metric.label_size() > 0 && metric.label(0).value() == "other";
      EXPECT_EQ(created.seconds(), !is_of_a_rank                                ? 5
                                   : kCountedSinceKnown.contains(family.name()) ? 1700000050
                                   : is_of_a_process                            ? 1700000000
                                   : is_of_others                               ? 1700000100
                                                                                : 1700000001)
          << family.name();
    }
  }
}

}  // namespace
}  // namespace nccl_exporter::exporter
