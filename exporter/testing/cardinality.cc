// SPDX-License-Identifier: Apache-2.0
#include "exporter/testing/cardinality.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>

#include "exporter/exposition/encoder.h"
#include "exporter/exposition/gzip.h"
#include "exporter/series/metric_filter.h"
#include "exporter/web/daemon_metrics.h"
#include "exporter/web/limits.h"
#include "proto/droppable_labels.h"

namespace nccl_exporter::exporter {
namespace {

using SharedBook = std::shared_ptr<const Book>;

constexpr std::array kFormats{Format::kText, Format::kOpenMetrics, Format::kProtobuf};

size_t Index(Format format) { return static_cast<size_t>(format); }

// The exposition that a daemon with the default limit serves, with its own metrics.
Exposition ExpositionOf(const SharedBook& book, const MetricFilter& filter, Collect collect,
                        SeriesDrops& drops) {
  // As PageBuilder does: detail is made with the alert series, and then they are removed.
  const Collect made = collect == Collect::kAlerts ? Collect::kAlerts : Collect::kWhole;
  Exposition exposition = ExpositionOfCatalogue(filter, made);
  SeriesMemory memory(filter);
  drops = AddSnapshotFamilies(book, kSeriesLimit, memory, exposition, made);
  DaemonMetrics daemon(Limits(kSeriesLimit));
  daemon.CountDrops(drops);
  daemon.AddTo(exposition);
  KeepOnly(collect, exposition);
  return exposition;
}

std::string Encoded(const Exposition& exposition, Format format) {
  std::string body;
  Encode(format, exposition, body);
  return body;
}

// The bytes of this family in a scrape body. Encoders write each family independently of the
// others, so a body with this family alone has the same bytes.
size_t BytesOf(const Family& family, const Exposition& exposition, Format format) {
  Exposition alone;
  const size_t bytes_of_none = Encoded(alone, format).size();
  alone.labels = exposition.labels;
  alone.families = {family};
  alone.created_realtime_ns = exposition.created_realtime_ns;
  return Encoded(alone, format).size() - bytes_of_none;
}

// Series of families in a format without native histograms, and in one with them.
std::pair<size_t, size_t> SeriesOf(std::span<const Family> families) {
  std::pair<size_t, size_t> sum;
  for (const Family& family : families) {
    const size_t classic = family.series.size() * SamplesPerSeries(family);
    sum.first += classic;
    sum.second += family.scale.native ? family.series.size() : classic;
  }
  return sum;
}

// A flag that is not given, and the number of series with it.
struct Saving {
  std::string flag;
  size_t classic_series;
  size_t native_series;
  bool is_needed_by_rules;
};

std::vector<Saving> SavingsOf(const SharedBook& book, const MetricFilter& filter, Collect collect,
                              const Cardinality& now) {
  std::vector<Saving> savings;
  const auto consider = [&](std::string flag, const std::function<void(MetricFilter&)>& change) {
    MetricFilter changed = filter;
    change(changed);
    SeriesDrops drops;
    const Exposition exposition = ExpositionOf(book, changed, collect, drops);
    const auto [classic, native] = SeriesOf(exposition.families);
    if (classic >= now.classic_series) return;
    savings.push_back({.flag = std::move(flag),
                       .classic_series = classic,
                       .native_series = native,
                       .is_needed_by_rules = changed.TakenFromRules() != filter.TakenFromRules()});
  };
  consider("--metrics.disable=histograms", [](MetricFilter& more) { more.Disable(kHistograms); });
  consider("--metrics.classic-buckets=off",
           [](MetricFilter& more) { more.SetClassicBuckets("off"); });
  for (const FamilyCost& family : now.families) {
    consider("--metrics.disable=" + family.name,
             [&](MetricFilter& more) { more.Disable(family.name); });
  }
  for (const DroppableLabel& label : kDroppableLabels) {
    consider("--metrics.drop-label=" + std::string(label.name),
             [&](MetricFilter& more) { more.DropLabel(label.name); });
  }
  consider("--metrics.drop-label=rank --metrics.drop-label=gpu", [](MetricFilter& more) {
    more.DropLabel("rank");
    more.DropLabel("gpu");
  });
  std::ranges::stable_sort(savings, {}, &Saving::classic_series);
  return savings;
}

double Percent(size_t part, size_t whole) {
  return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

using Out = std::back_insert_iterator<std::string>;

void AppendFamilies(const Cardinality& cardinality, Out out) {
  const auto append = [&](const auto&... cells) {
    fmt::format_to(out, "{:<58} {:>8} {:>8} {:>10} {:>12} {:>10}\n", cells...);
  };
  append("", "series", "series", "bytes", "bytes", "bytes");
  append("family", "classic", "native", "text", "OpenMetrics", "protobuf");
  for (const FamilyCost& family : cardinality.families) {
    append(family.name, family.classic_series, family.native_series,
           family.bytes[Index(Format::kText)], family.bytes[Index(Format::kOpenMetrics)],
           family.bytes[Index(Format::kProtobuf)]);
  }
}

void AppendBodies(const Cardinality& cardinality, bool has_native, Out out) {
  const auto append = [&](std::string_view name, size_t series, Format format) {
    const auto [bytes, compressed_bytes] = cardinality.bodies[Index(format)];
    fmt::format_to(out, "{:<58} {:>8} {:>8} {:>12}\n", name, series, bytes, compressed_bytes);
  };
  fmt::format_to(out, "\n{:<58} {:>8} {:>8} {:>12}\n", "scrape body", "samples", "bytes",
                 "with gzip");
  append("text", cardinality.classic_series, Format::kText);
  append("OpenMetrics", cardinality.classic_series, Format::kOpenMetrics);
  append(has_native ? "protobuf, of histograms the native part" : "protobuf",
         cardinality.native_series, Format::kProtobuf);
}

void AppendSavings(const std::vector<Saving>& savings, const Cardinality& now, Out out) {
  constexpr size_t kShown = 12;        // the list is sorted: later ones save less
  constexpr double kLeastPercent = 1;  // a smaller saving is not worth a flag
  fmt::format_to(out, "\n{:<66} {:>8} {:>8}  {}\n", "flags that save most", "classic", "native",
                 "shipped rules");
  for (size_t i = 0; i < std::min(kShown, savings.size()); ++i) {
    const Saving& saving = savings[i];
    const double percent = Percent(now.classic_series - saving.classic_series, now.classic_series);
    if (percent < kLeastPercent) break;
    fmt::format_to(out, "{:<66} {:>6.0f} % {:>6.0f} %  {}\n", saving.flag, percent,
                   Percent(now.native_series - std::min(saving.native_series, now.native_series),
                           now.native_series),
                   saving.is_needed_by_rules ? "need it" : "");
  }
}

}  // namespace

Cardinality CardinalityOf(const std::shared_ptr<const Book>& book, const MetricFilter& filter,
                          Collect collect) {
  Cardinality cardinality;
  const Exposition exposition = ExpositionOf(book, filter, collect, cardinality.drops);
  for (const Family& family : exposition.families) {
    if (family.series.empty()) continue;
    FamilyCost cost{.name = family.name};
    std::tie(cost.classic_series, cost.native_series) = SeriesOf({&family, 1});
    for (const Format format : kFormats)
      cost.bytes[Index(format)] = BytesOf(family, exposition, format);
    cardinality.classic_series += cost.classic_series;
    cardinality.native_series += cost.native_series;
    cardinality.families.push_back(std::move(cost));
  }
  for (const Format format : kFormats) {
    const std::string body = Encoded(exposition, format);
    cardinality.bodies[Index(format)] = {.bytes = body.size(),
                                         .compressed_bytes = Gzip(body).size()};
  }
  return cardinality;
}

std::string CardinalityText(const std::shared_ptr<const Book>& book, const MetricFilter& filter,
                            Collect collect) {
  const Cardinality cardinality = CardinalityOf(book, filter, collect);
  size_t communicators = 0;
  for (const collector::ProcessSnapshot& process : book->node->processes)
    communicators += process.communicators.size();
  std::string text;
  const Out out = std::back_inserter(text);
  fmt::format_to(out, "{} processes, {} communicators in total\n\n", book->node->processes.size(),
                 communicators);
  AppendFamilies(cardinality, out);
  AppendBodies(cardinality, filter.native_schema().has_value(), out);
  fmt::format_to(out, "\nlimit: {} samples; above it are lost", kSeriesLimit);
  for (const CodeRow<SeriesLoss>& row : kSeriesLosses) {
    fmt::format_to(out, "{} {} {}", &row == &kSeriesLosses.front() ? "" : ",", row.name,
                   cardinality.drops.Of(row.id));
  }
  fmt::format_to(out, "\n");
  AppendSavings(SavingsOf(book, filter, collect, cardinality), cardinality, out);
  const std::string taken = filter.TakenFromRules();
  fmt::format_to(out, "\n{}\n",
                 taken.empty() ? "the shipped rules have everything that they need"
                               : "left out, but needed by the shipped rules: " + taken);
  return text;
}

}  // namespace nccl_exporter::exporter
