// SPDX-License-Identifier: Apache-2.0
// Cost of a scrape: building families and encoding them, against prometheus-cpp's serializer on the same data.
#include <benchmark/benchmark.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "exporter/example_snapshot.h"
#include "exporter/gzip.h"
#include "exporter/openmetrics_encoder.h"
#include "exporter/snapshot_families.h"
#include "exporter/text_encoder.h"

namespace nccl_exporter {
namespace {

constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

// Node of a benchmark: communicators a rank (8 ranks), collectives in use on each.
std::shared_ptr<const NodeSnapshot> SnapshotOf(const benchmark::State& state) {
  return LoadedSnapshot(static_cast<int>(state.range(0)), static_cast<int>(state.range(1)));
}

// 8 ranks x 12 communicators with one collective each, and with four: a little more than the cap of 20,000 series.
void Nodes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"communicators", "collectives"})->Args({12, 1})->Args({12, 4})->Unit(benchmark::kMillisecond);
}

Exposition ExpositionOf(std::shared_ptr<const NodeSnapshot> snapshot) {
  Exposition exposition = ExpositionOfCatalogue();
  AddSnapshotFamilies(std::move(snapshot), kNoLimit, exposition);
  return exposition;
}

void Report(benchmark::State& state, const Exposition& exposition, size_t bytes) {
  size_t samples = 0;
  for (const Family& family : exposition.families) samples += family.series.size() * SamplesPerSeries(family);
  state.counters["series"] = static_cast<double>(samples);
  state.counters["bytes"] = static_cast<double>(bytes);
}

void BuildFamilies(benchmark::State& state) {
  const auto snapshot = SnapshotOf(state);
  for (auto _ : state) benchmark::DoNotOptimize(ExpositionOf(snapshot));
}
BENCHMARK(BuildFamilies)->Apply(Nodes);

template <typename EncoderType>
void Encode(benchmark::State& state) {
  const Exposition exposition = ExpositionOf(SnapshotOf(state));
  const EncoderType encoder;
  std::string text;
  for (auto _ : state) {
    text = std::string();
    encoder.Encode(exposition, text);
    benchmark::DoNotOptimize(text);
  }
  Report(state, exposition, text.size());
}
BENCHMARK(Encode<TextEncoder>)->Apply(Nodes);
BENCHMARK(Encode<OpenMetricsEncoder>)->Apply(Nodes);

void BuildAndEncodeText(benchmark::State& state) {
  const auto snapshot = SnapshotOf(state);
  for (auto _ : state) {
    std::string text;
    TextEncoder().Encode(ExpositionOf(snapshot), text);
    benchmark::DoNotOptimize(text);
  }
}
BENCHMARK(BuildAndEncodeText)->Apply(Nodes);

void Compress(benchmark::State& state) {
  const Exposition exposition = ExpositionOf(SnapshotOf(state));
  std::string text;
  TextEncoder().Encode(exposition, text);
  size_t bytes = 0;
  for (auto _ : state) bytes = Gzip(text).size();
  Report(state, exposition, bytes);
}
BENCHMARK(Compress)->Apply(Nodes);

void AppendLabels(const Labels& labels, prometheus::ClientMetric& metric) {
  for (const Label& label : labels) metric.label.push_back({label.name, label.value});
}

prometheus::ClientMetric::Histogram PrometheusHistogram(const HistogramScale& scale, const Series& series) {
  prometheus::ClientMetric::Histogram histogram;
  uint64_t count = 0;
  size_t next = 0;
  for (size_t i = 0; i < scale.bounds.size(); ++i) {
    for (; next < scale.ends[i]; ++next) count += series.counts[next];
    histogram.bucket.push_back({count, scale.bounds[i]});
  }
  for (; next < series.counts.size(); ++next) count += series.counts[next];
  histogram.bucket.push_back({count, std::numeric_limits<double>::infinity()});
  histogram.sample_count = count;
  histogram.sample_sum = series.value;
  return histogram;
}

std::vector<prometheus::MetricFamily> PrometheusFamilies(const Exposition& exposition) {
  std::vector<prometheus::MetricFamily> families;
  for (const Family& family : exposition.families) {
    if (family.series.empty()) continue;
    prometheus::MetricFamily& converted = families.emplace_back();
    converted.name = family.name;
    converted.help = family.help;
    converted.type = family.type == MetricType::kCounter     ? prometheus::MetricType::Counter
                     : family.type == MetricType::kHistogram ? prometheus::MetricType::Histogram
                                                             : prometheus::MetricType::Gauge;
    for (const Series& series : family.series) {
      prometheus::ClientMetric& metric = converted.metric.emplace_back();
      AppendLabels(exposition.labels[series.subject]->labels(), metric);
      AppendLabels(exposition.labels[series.own]->labels(), metric);
      metric.counter.value = metric.gauge.value = series.value;
      if (family.type == MetricType::kHistogram) metric.histogram = PrometheusHistogram(family.scale, series);
    }
  }
  return families;
}

void PrometheusCppTextSerializer(benchmark::State& state) {
  const Exposition exposition = ExpositionOf(SnapshotOf(state));
  const std::vector<prometheus::MetricFamily> families = PrometheusFamilies(exposition);
  const prometheus::TextSerializer serializer;
  std::string text;
  for (auto _ : state) {
    text = serializer.Serialize(families);
    benchmark::DoNotOptimize(text);
  }
  Report(state, exposition, text.size());
}
BENCHMARK(PrometheusCppTextSerializer)->Apply(Nodes);

}  // namespace
}  // namespace nccl_exporter
