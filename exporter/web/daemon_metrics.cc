// SPDX-License-Identifier: Apache-2.0
// The daemon's registry, and prometheus-cpp's families as ours.
#include "exporter/web/daemon_metrics.h"

#include <prometheus/metric_family.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/series/exposition_builder.h"
#include "exporter/text/version.h"
#include "exporter/web/process_readings.h"

namespace nccl_exporter::exporter {
namespace {

// From a node with a few communicators to one at the series cap on a busy CPU, in seconds.
constexpr std::array kScrapeBounds{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0};

// Value of the label uid for users beyond collector::kMaxTroubledUsers.
constexpr std::string_view kOtherUsers = "other";

// A builder of prometheus-cpp with name and help of the catalogue.
template <typename Builder>
Builder Named(Builder builder, Metric metric) {
  return builder.Name(std::string(RowOf(metric).name)).Help(std::string(RowOf(metric).help));
}

// Counts of each bucket from cumulative ones.
std::vector<uint64_t> CountsOf(const prometheus::ClientMetric::Histogram& source) {
  std::vector<uint64_t> counts;
  uint64_t below = 0;
  for (const auto& bucket : source.bucket)
    counts.push_back(bucket.cumulative_count - std::exchange(below, bucket.cumulative_count));
  return counts;
}

HistogramScale ScaleOf(const prometheus::ClientMetric::Histogram& source) {
  HistogramScale scale;
  for (const auto& bucket : source.bucket) {
    if (std::isinf(bucket.upper_bound)) continue;
    scale.bounds.push_back(bucket.upper_bound);
    scale.ends.push_back(static_cast<uint32_t>(scale.bounds.size()));
  }
  return scale;
}

// The catalogue has a family of that name.
void AddFamily(const prometheus::MetricFamily& source, Exposition& exposition,
               ExpositionBuilder& builder) {
  const auto family = std::ranges::find(exposition.families, source.name, &Family::name);
  assert(family != exposition.families.end());
  const auto metric = static_cast<Metric>(family - exposition.families.begin());
  if (!builder.Serves(metric)) return;
  for (const prometheus::ClientMetric& each : source.metric) {
    Labels labels;
    for (const auto& label : each.label) labels.push_back({label.name, label.value});
    const LabelsId id = labels.empty() ? kNoLabels : builder.AddLabels(std::move(labels));
    if (source.type == prometheus::MetricType::Histogram) {
      family->scale = ScaleOf(each.histogram);
      builder.Add(metric, kNoLabels, id, each.histogram.sample_sum,
                  builder.Keep(CountsOf(each.histogram)));
    } else {
      const bool is_counter = source.type == prometheus::MetricType::Counter;
      builder.Add(metric, kNoLabels, id, is_counter ? each.counter.value : each.gauge.value);
    }
  }
}

}  // namespace

DaemonMetrics::DaemonMetrics(const std::vector<Limit>& limits, std::string_view commit)
    : started_realtime_ns_(
          std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count()),
      scrape_duration_(Named(prometheus::BuildHistogram(), Metric::kScrapeDuration)
                           .Register(registry_)
                           .Add({}, prometheus::Histogram::BucketBoundaries(kScrapeBounds.begin(),
                                                                            kScrapeBounds.end()))),
      series_dropped_(
          Named(prometheus::BuildCounter(), Metric::kSeriesDropped).Register(registry_)),
      log_lines_dropped_(
          Named(prometheus::BuildCounter(), Metric::kLogLinesDropped).Register(registry_).Add({})),
      unmeasured_(
          Named(prometheus::BuildGauge(), Metric::kUnmeasuredProcesses).Register(registry_)),
      extension_faults_(
          Named(prometheus::BuildCounter(), Metric::kExtensionFaults).Register(registry_)) {
  // There from the start, so that the family is never absent.
  for (const CodeRow<SeriesLoss>& row : kSeriesLosses)
    series_dropped_.Add({{"uid", std::string(kOtherUsers)}, {"reason", std::string(row.name)}});
  prometheus::Labels build{{"version", std::string(kVersion)},
                           {"compiler", std::string(kCompiler)}};
  // An empty label is none, and OpenMetrics forbids it.
  if (!commit.empty()) build["revision"] = commit;
  Named(prometheus::BuildGauge(), Metric::kBuildInfo).Register(registry_).Add(build).Set(1);
  for (const Limit& limit : limits) {
    auto& family = Named(prometheus::BuildGauge(), limit.family).Register(registry_);
    family.Add({{"limit", std::string(limit.name)}}).Set(limit.value);
  }
  auto& refused = Named(prometheus::BuildCounter(), Metric::kRequestsRefused).Register(registry_);
  for (size_t i = 0; i < kRefusalCount; ++i)
    refusals_[i] = &refused.Add({{"reason", std::string(kRefusals[i].name)}});
  auto& findings = Named(prometheus::BuildGauge(), Metric::kFindings).Register(registry_);
  for (size_t kind = 0; kind < findings_.size(); ++kind) {
    for (size_t severity = 0; severity < findings_[kind].size(); ++severity)
      findings_[kind][severity] =
          &findings.Add({{"kind", std::string(kFindingKinds[kind].name)},
                         {"severity", std::string(kSeverities[severity].name)}});
  }
}

void DaemonMetrics::ObserveScrape(std::chrono::nanoseconds duration) {
  scrape_duration_.Observe(std::chrono::duration<double>(duration).count());
}

void DaemonMetrics::CountDrops(const SeriesDrops& drops) {
  const std::lock_guard lock(mutex_);
  for (const auto& [user, counts] : drops.by_user) {
    if (users_with_drops_.size() < collector::kMaxTroubledUsers) users_with_drops_.insert(user);
    const std::string uid =
        users_with_drops_.contains(user) ? std::to_string(user) : std::string(kOtherUsers);
    for (const CodeRow<SeriesLoss>& row : kSeriesLosses) {
      series_dropped_.Add({{"uid", uid}, {"reason", std::string(row.name)}})
          .Increment(static_cast<double>(counts[static_cast<size_t>(row.id)]));
    }
  }
}

void DaemonMetrics::Count(Refusal refusal) { refusals_[static_cast<size_t>(refusal)]->Increment(); }

void DaemonMetrics::SetDroppedLogLines(uint64_t lines) {
  log_lines_dropped_.Increment(static_cast<double>(lines) - log_lines_dropped_.Value());
}

void DaemonMetrics::SetExtensionFaults(uint64_t faults) {
  prometheus::Counter& counter = extension_faults_.Add({});
  counter.Increment(static_cast<double>(faults) - counter.Value());
}

void DaemonMetrics::SetFindings(const std::vector<Finding>& findings) {
  ByFinding<double> counts{};
  for (const Finding& finding : findings)
    ++counts[static_cast<size_t>(finding.kind)][static_cast<size_t>(finding.severity)];
  for (size_t kind = 0; kind < counts.size(); ++kind) {
    for (size_t severity = 0; severity < counts[kind].size(); ++severity)
      findings_[kind][severity]->Set(counts[kind][severity]);
  }
}

void DaemonMetrics::SetUnmeasuredProcesses(std::optional<uint64_t> count) {
  const std::lock_guard lock(mutex_);
  if (!count) {
    if (unmeasured_processes_ != nullptr) unmeasured_.Remove(unmeasured_processes_);
    unmeasured_processes_ = nullptr;
    return;
  }
  if (unmeasured_processes_ == nullptr) unmeasured_processes_ = &unmeasured_.Add({});
  unmeasured_processes_->Set(static_cast<double>(*count));
}

void DaemonMetrics::AddTo(Exposition& exposition) const {
  exposition.created_realtime_ns = started_realtime_ns_;
  ExpositionBuilder builder(exposition);
  for (const prometheus::MetricFamily& family : registry_.Collect())
    AddFamily(family, exposition, builder);
  builder.Add(Metric::kProcessStartTime, kNoLabels, kNoLabels,
              static_cast<double>(started_realtime_ns_) / 1e9);
  // Files in /proc cost more to read than a small scrape to make.
  constexpr auto kLast = static_cast<size_t>(Metric::kProcessThreads);
  for (auto i = static_cast<size_t>(Metric::kProcessCpu); i <= kLast; ++i) {
    const auto metric = static_cast<Metric>(i);
    if (!builder.Serves(metric)) continue;
    const std::optional<double> value = ProcessReading(metric);
    if (value) builder.Add(metric, kNoLabels, kNoLabels, *value);
  }
}

}  // namespace nccl_exporter::exporter
