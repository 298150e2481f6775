// SPDX-License-Identifier: Apache-2.0
#include "exporter/web/daemon_metrics.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "collector/node_snapshot.h"
#include "exporter/series/exposition_builder.h"
#include "exporter/text/version.h"
#include "exporter/web/process_readings.h"

namespace nccl_exporter::exporter {
namespace {

// Value of the label uid for users beyond collector::kMaxTroubledUsers.
constexpr const char* kOtherUsers = "other";

void Add(ExpositionBuilder& builder, Metric metric, Labels labels, double value) {
  if (builder.Serves(metric))
    builder.Add(metric, kNoLabels, builder.AddLabels(std::move(labels)), value);
}

Label Named(const char* label, std::string_view value) { return {label, std::string(value)}; }

void AddBuildInfo(ExpositionBuilder& builder, const std::string& commit) {
  Labels labels{Named("compiler", kCompiler), Named("version", kVersion)};
  // An empty label is none, and OpenMetrics forbids it.
  if (!commit.empty()) labels.insert(labels.begin() + 1, {"revision", commit});
  Add(builder, Metric::kBuildInfo, std::move(labels), 1);
}

}  // namespace

DaemonMetrics::DaemonMetrics(std::vector<Limit> limits, std::string_view commit)
    : started_realtime_ns_(
          std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count()),
      limits_(std::move(limits)),
      commit_(commit),
      drops_{{kOtherUsers, {}}} {}

void DaemonMetrics::ObserveScrape(std::chrono::nanoseconds duration) {
  const double seconds = std::chrono::duration<double>(duration).count();
  const auto bound = std::ranges::lower_bound(kScrapeBounds, seconds);
  const std::lock_guard lock(mutex_);
  ++scrapes_[static_cast<size_t>(bound - kScrapeBounds.begin())];
  scrape_seconds_ += seconds;
}

void DaemonMetrics::CountDrops(const SeriesDrops& drops) {
  const std::lock_guard lock(mutex_);
  for (const auto& [user, counts] : drops.by_user) {
    const std::string uid = std::to_string(user);
    const bool is_named = drops_.contains(uid) || drops_.size() <= collector::kMaxTroubledUsers;
    auto& sums = drops_[is_named ? uid : kOtherUsers];
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += counts[i];
  }
}

void DaemonMetrics::Count(Refusal refusal) {
  const std::lock_guard lock(mutex_);
  ++refusals_[static_cast<size_t>(refusal)];
}

void DaemonMetrics::SetDroppedLogLines(uint64_t lines) {
  const std::lock_guard lock(mutex_);
  dropped_log_lines_ = lines;
}

void DaemonMetrics::SetFindings(const std::vector<Finding>& findings) {
  const std::lock_guard lock(mutex_);
  findings_ = {};
  for (const Finding& finding : findings)
    ++findings_[static_cast<size_t>(finding.kind)][static_cast<size_t>(finding.severity)];
}

void DaemonMetrics::SetUnmeasuredProcesses(std::optional<uint64_t> count) {
  const std::lock_guard lock(mutex_);
  unmeasured_processes_ = count;
}

void DaemonMetrics::AddTo(Exposition& exposition) const {
  exposition.created_realtime_ns = started_realtime_ns_;
  ExpositionBuilder builder(exposition);
  AddBuildInfo(builder, commit_);
  for (const Limit& limit : limits_)
    Add(builder, limit.family, {Named("limit", limit.name)}, limit.value);
  builder.Add(Metric::kProcessStartTime, kNoLabels, kNoLabels,
              static_cast<double>(started_realtime_ns_) / 1e9);
  // Files in /proc cost more to read than a small scrape to make.
  constexpr auto kLast = static_cast<size_t>(Metric::kProcessThreads);
  for (auto i = static_cast<size_t>(Metric::kProcessCpu); i <= kLast; ++i) {
    const std::optional<double> value =
        exposition.families[i].is_served ? ProcessReading(static_cast<Metric>(i)) : std::nullopt;
    if (value) builder.Add(static_cast<Metric>(i), kNoLabels, kNoLabels, *value);
  }
  HistogramScale& scale = exposition.families[static_cast<size_t>(Metric::kScrapeDuration)].scale;
  scale.bounds.assign(kScrapeBounds.begin(), kScrapeBounds.end());
  scale.ends.resize(kScrapeBounds.size());
  std::iota(scale.ends.begin(), scale.ends.end(), 1);
  const std::lock_guard lock(mutex_);
  builder.AddHistogram(Metric::kScrapeDuration, kNoLabels, kNoLabels, scrape_seconds_,
                       builder.Keep(scrapes_));
  for (const auto& [uid, counts] : drops_) {
    for (const CodeRow<SeriesLoss>& row : kSeriesLosses)
      Add(builder, Metric::kSeriesDropped, {Named("reason", row.name), Named("uid", uid)},
          static_cast<double>(counts[static_cast<size_t>(row.id)]));
  }
  for (const CodeRow<Refusal>& row : kRefusals)
    Add(builder, Metric::kRequestsRefused, {Named("reason", row.name)},
        static_cast<double>(refusals_[static_cast<size_t>(row.id)]));
  builder.Add(Metric::kLogLinesDropped, kNoLabels, kNoLabels,
              static_cast<double>(dropped_log_lines_));
  if (unmeasured_processes_)
    builder.Add(Metric::kUnmeasuredProcesses, kNoLabels, kNoLabels,
                static_cast<double>(*unmeasured_processes_));
  for (size_t kind = 0; kind < findings_.size(); ++kind) {
    for (size_t severity = 0; severity < findings_[kind].size(); ++severity)
      Add(builder, Metric::kFindings,
          {Named("kind", kFindingKinds[kind].name), Named("severity", kSeverities[severity].name)},
          static_cast<double>(findings_[kind][severity]));
  }
}

}  // namespace nccl_exporter::exporter
