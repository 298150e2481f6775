// SPDX-License-Identifier: Apache-2.0
// Cost of a scrape, from the snapshot to the bytes of the answer, in each format with and without
// compression; beside prometheus-cpp's Registry and TextSerializer, and beside protobuf's own
// runtime.
#include <benchmark/benchmark.h>
#include <google/protobuf/util/delimited_message_util.h>
#include <metric_family.pb.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "collector/collector.h"
#include "exporter/exposition/encoder.h"
#include "exporter/exposition/native_histogram.h"
#include "exporter/series/collect.h"
#include "exporter/series/metric_filter.h"
#include "exporter/series/snapshot_families.h"
#include "exporter/testing/example_snapshot.h"
#include "exporter/web/page_builder.h"
#include "exporter/web/scrape_page.h"

namespace nccl_exporter::exporter {
namespace {

namespace messages = io::prometheus::client;

constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

// A node of 8 ranks: what a mixed layout of the simulator leaves behind, which is 3 communicators a
// rank (a world with 5 collectives, a tensor parallel group with 3, a pipeline with sends and
// receives), as often as it takes. All but the first three leave the node, arrivals are compared,
// and the daemon has kept its book.
std::shared_ptr<const Book> NodeOf(const collector::NodeSnapshot& job, size_t times) {
  auto node = std::make_shared<collector::NodeSnapshot>(job);
  for (collector::ProcessSnapshot& process : node->processes) {
    process.is_alive = true;  // a halted one has the series of stalled communicators
    const std::vector<collector::CommunicatorSnapshot> once = process.communicators;
    for (size_t i = 1; i < times; ++i) {
      for (collector::CommunicatorSnapshot communicator : once) {
        communicator.id += i * 0x9e3779b97f4a7c15;
        communicator.slot = static_cast<uint32_t>(process.communicators.size());
        communicator.nodes = 2;
        process.communicators.push_back(std::move(communicator));
      }
    }
    for (collector::CommunicatorSnapshot& communicator : process.communicators)
      communicator.arrivals = {.compared = communicator.started_sequence, .last = 815};
  }
  return AssumedBook(node);
}

Exposition ExpositionOf(std::shared_ptr<const Book> book, SeriesMemory& memory,
                        Collect collect = Collect::kWhole) {
  Exposition exposition = ExpositionOfCatalogue({}, collect);
  AddSnapshotFamilies(std::move(book), kNoLimit, memory, exposition, collect);
  return exposition;
}

size_t SamplesOf(const Exposition& exposition) {
  size_t samples = 0;
  for (const Family& family : exposition.families)
    samples += family.series.size() * SamplesPerSeries(family);
  return samples;
}

double ResidentMib() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return static_cast<double>(pages) * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

void Report(benchmark::State& state, const Exposition& exposition, size_t bytes) {
  state.counters["series"] = static_cast<double>(SamplesOf(exposition));
  state.counters["bytes"] = static_cast<double>(bytes);
  state.counters["rss_mib"] = ResidentMib();
}

using Node = std::shared_ptr<const Book>;

// The whole way that a request takes but for the network and the reading of segments.
void Scrape(benchmark::State& state, const Node& node, Collect collect, HttpRequest request) {
  if (collect == Collect::kAlerts) request.query = {{std::string(kCollectParameter), "alerts"}};
  BookSource books([&] { return node; });
  AnswerBudget budget;
  ScrapePage page(books, budget, kNoLimit);
  size_t bytes = 0;
  for (auto _ : state) bytes = page.Answer(request).bytes().size();
  SeriesMemory memory;
  Report(state, ExpositionOf(node, memory, collect), bytes);
}

void BuildFamilies(benchmark::State& state, const Node& node, Collect collect) {
  SeriesMemory memory;
  for (auto _ : state) benchmark::DoNotOptimize(ExpositionOf(node, memory, collect));
}

void BuildFamiliesUncached(benchmark::State& state, const Node& node) {
  for (auto _ : state) {
    SeriesMemory memory;
    benchmark::DoNotOptimize(ExpositionOf(node, memory));
  }
}

void EncodeProtobuf(benchmark::State& state, const Node& node) {
  SeriesMemory memory;
  const Exposition exposition = ExpositionOf(node, memory);
  std::string body;
  for (auto _ : state) {
    body.clear();
    Encode(Format::kProtobuf, exposition, body);
    benchmark::DoNotOptimize(body);
  }
  Report(state, exposition, body.size());
}

void SetTimestamp(int64_t realtime_ns, messages::Timestamp& timestamp) {
  timestamp.set_seconds(realtime_ns / 1000000000);
  timestamp.set_nanos(static_cast<int32_t>(realtime_ns % 1000000000));
}

void SetHistogram(const HistogramScale& scale, const Series& series,
                  messages::Histogram& histogram) {
  uint64_t count = 0;
  size_t next = 0;
  for (size_t i = 0; i < scale.bounds.size(); ++i) {
    for (; next < scale.ends[i]; ++next) count += series.counts[next];
    messages::Bucket& bucket = *histogram.add_bucket();
    bucket.set_cumulative_count(count);
    bucket.set_upper_bound(scale.bounds[i]);
  }
  for (; next < series.counts.size(); ++next) count += series.counts[next];
  histogram.set_sample_count(count);
  histogram.set_sample_sum(series.value);
  SetTimestamp(series.created_realtime_ns, *histogram.mutable_created_timestamp());
  if (!scale.native) return;
  NativeHistogram native;
  native.Set(*scale.native, series.counts);
  histogram.set_schema(native.schema);
  histogram.set_zero_threshold(native.zero_threshold);
  histogram.set_zero_count(native.zero_count);
  for (const NativeHistogram::Span& span : native.spans) {
    messages::BucketSpan& added = *histogram.add_positive_span();
    added.set_offset(span.offset);
    added.set_length(span.length);
  }
  for (const int64_t delta : native.deltas) histogram.add_positive_delta(delta);
}

void SetMetric(const Exposition& exposition, const Family& family, const Series& series,
               messages::Metric& metric) {
  for (const LabelsId id : {series.group_labels, series.variable_labels}) {
    for (const Label& label : exposition.labels[id]->labels()) {
      messages::LabelPair& pair = *metric.add_label();
      pair.set_name(label.name);
      pair.set_value(label.value);
    }
  }
  switch (family.type) {
    case MetricType::kCounter:
      metric.mutable_counter()->set_value(series.value);
      SetTimestamp(series.created_realtime_ns,
                   *metric.mutable_counter()->mutable_created_timestamp());
      break;
    case MetricType::kHistogram:
      SetHistogram(family.scale, series, *metric.mutable_histogram());
      break;
    case MetricType::kGauge:
    case MetricType::kInfo:
      metric.mutable_gauge()->set_value(series.value);
      break;
  }
}

// Protocol buffers by the runtime that protoc's code needs.
void EncodeProtobufByItsRuntime(benchmark::State& state, const Node& node) {
  SeriesMemory memory;
  const Exposition exposition = ExpositionOf(node, memory);
  std::string body;
  for (auto _ : state) {
    std::ostringstream out;
    for (const Family& family : exposition.families) {
      if (family.series.empty()) continue;
      messages::MetricFamily message;
      message.set_name(family.name);
      message.set_help(family.help);
      for (const Series& series : family.series)
        SetMetric(exposition, family, series, *message.add_metric());
      google::protobuf::util::SerializeDelimitedToOstream(message, &out);
    }
    body = std::move(out).str();
    benchmark::DoNotOptimize(body);
  }
  Report(state, exposition, body.size());
}

// prometheus-cpp as a daemon would use it that keeps all series in a Registry.
class PrometheusRegistry {
 public:
  explicit PrometheusRegistry(const Exposition& exposition) {
    for (const Family& family : exposition.families) {
      if (family.series.empty()) continue;
      for (const Series& series : family.series) Add(family, series, LabelsOf(exposition, series));
    }
  }
  std::vector<prometheus::MetricFamily> Collect() const { return registry_.Collect(); }

 private:
  static prometheus::Labels LabelsOf(const Exposition& exposition, const Series& series) {
    prometheus::Labels labels;
    for (const LabelsId id : {series.group_labels, series.variable_labels}) {
      for (const Label& label : exposition.labels[id]->labels())
        labels.emplace(label.name, label.value);
    }
    return labels;
  }

  template <typename Builder>
  auto& Register(Builder builder, const Family& family) {
    return builder.Name(family.name).Help(family.help).Register(registry_);
  }

  void Add(const Family& family, const Series& series, const prometheus::Labels& labels) {
    if (family.type == MetricType::kCounter) {
      Register(prometheus::BuildCounter(), family).Add(labels).Increment(series.value);
    } else if (family.type != MetricType::kHistogram) {
      Register(prometheus::BuildGauge(), family).Add(labels).Set(series.value);
    } else {
      std::vector<double> increments(family.scale.bounds.size() + 1);
      size_t next = 0;
      for (size_t i = 0; i < increments.size(); ++i) {
        const size_t end =
            i < family.scale.ends.size() ? family.scale.ends[i] : series.counts.size();
        for (; next < end; ++next) increments[i] += static_cast<double>(series.counts[next]);
      }
      Register(prometheus::BuildHistogram(), family)
          .Add(labels, prometheus::Histogram::BucketBoundaries(family.scale.bounds))
          .ObserveMultiple(increments, series.value);
    }
  }

  prometheus::Registry registry_;
};

void PrometheusCpp(benchmark::State& state, const Node& node) {
  SeriesMemory memory;
  const Exposition exposition = ExpositionOf(node, memory);
  const PrometheusRegistry registry(exposition);
  const prometheus::TextSerializer serializer;
  std::string text;
  for (auto _ : state) {
    text = serializer.Serialize(registry.Collect());
    benchmark::DoNotOptimize(text);
  }
  Report(state, exposition, text.size());
}

template <typename Function, typename... Arguments>
void Register(const std::string& name, Function function, const Arguments&... arguments) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [=](benchmark::State& state) { function(state, arguments...); })
      ->Unit(benchmark::kMillisecond)
      ->MeasureProcessCPUTime()
      ->UseRealTime();
}

void RegisterNode(const std::string& name, const Node& node) {
  const std::string protobuf =
      "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
  for (const auto& [format, accept] :
       {std::pair<std::string, std::string>{"text", "text/plain;version=0.0.4"},
        {"openmetrics", "application/openmetrics-text;version=1.0.0"},
        {"protobuf", protobuf}}) {
    for (const std::string encoding : {"identity", "gzip"}) {
      const HttpRequest request{.path = "/metrics", .accept = accept, .accept_encoding = encoding};
      const std::string kind = format + '/' + encoding + '/' + name;
      Register("Scrape/" + kind, Scrape, node, Collect::kWhole, request);
      Register("ScrapeAlerts/" + kind, Scrape, node, Collect::kAlerts, request);
    }
  }
  Register("PrometheusCpp/text/identity/" + name, PrometheusCpp, node);
  Register("EncodeProtobuf/" + name, EncodeProtobuf, node);
  Register("EncodeProtobufByItsRuntime/" + name, EncodeProtobufByItsRuntime, node);
  Register("BuildFamilies/" + name, BuildFamilies, node, Collect::kWhole);
  Register("BuildAlertFamilies/" + name, BuildFamilies, node, Collect::kAlerts);
  Register("BuildFamiliesUncached/" + name, BuildFamiliesUncached, node);
}

// The segments of a simulated job that has ended; `binaries` is the folder of all built programs.
std::shared_ptr<const collector::NodeSnapshot> SimulatedJob(const std::filesystem::path& binaries) {
  const std::filesystem::path segments =
      std::filesystem::temp_directory_path() / std::to_string(getpid());
  std::filesystem::create_directory(segments);
  const std::string command =
      "NCCL_EXPORTER_KERNEL_TIMING=on NCCL_ALLGATHERV_ENABLE=0 " +
      (binaries / "simulator/nccl-sim").string() + " --plugin " +
      (binaries / "plugin/libnccl-profiler-exporter.so").string() + " --segment-dir " +
      segments.string() + " --layout mixed --ranks-per-node 8 --steps 200 --rate 100000 >/dev/null";
  const int status = std::system(command.c_str());
  collector::Collector collector({.directories = {segments.string()}});
  auto job = status == 0 ? collector.Snapshot() : nullptr;
  std::filesystem::remove_all(segments);
  return job;
}

int Main(int argc, char** argv) {
  const auto job =
      SimulatedJob(std::filesystem::path(argv[0]).parent_path().parent_path().parent_path());
  if (job == nullptr || job->processes.size() != 8) {
    return std::fprintf(stderr, "scrape_benchmark: the simulator did not run\n"), 1;
  }
  constexpr size_t kTwelveCommunicators = 4;
  RegisterNode("8x12", NodeOf(*job, kTwelveCommunicators));
  // The limit, and three times as many.
  for (const size_t series : {size_t{kSeriesLimit}, size_t{3 * kSeriesLimit}}) {
    size_t times = kTwelveCommunicators;
    for (SeriesMemory memory; SamplesOf(ExpositionOf(NodeOf(*job, times), memory)) < series;)
      ++times;
    RegisterNode(std::to_string(series) + "_series", NodeOf(*job, times));
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace nccl_exporter::exporter

int main(int argc, char** argv) { return nccl_exporter::exporter::Main(argc, argv); }
