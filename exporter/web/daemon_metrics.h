// SPDX-License-Identifier: Apache-2.0
// The metrics of the daemon itself, kept by prometheus-cpp and converted into the family model.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "exporter/exposition/exposition.h"
#include "exporter/findings/finding.h"
#include "exporter/http/refusal.h"
#include "exporter/series/snapshot_families.h"
#include "exporter/web/limits.h"

namespace nccl_exporter::exporter {

template <typename Value>
using ByFinding = std::array<std::array<Value, kCountOf<Severity>>, kCountOf<FindingKind>>;

// Safe to use from any thread.
class DaemonMetrics {
 public:
  // `commit` as in exporter/commit.h.
  explicit DaemonMetrics(const std::vector<Limit>& limits = {}, std::string_view commit = {});

  void ObserveScrape(std::chrono::nanoseconds duration);
  void CountDrops(const SeriesDrops& drops);
  void Count(Refusal refusal);
  // Lines that the log dropped since the daemon's start. For one thread.
  void SetDroppedLogLines(uint64_t lines);
  // Faults of extensions since the daemon's start; absent until it is called. For one thread.
  void SetExtensionFaults(uint64_t faults);
  // Replaces those of the judgement before. A scrape meanwhile may see some kinds of each.
  void SetFindings(const std::vector<Finding>& findings);

  // Absent for nothing.
  void SetUnmeasuredProcesses(std::optional<uint64_t> count);

  // Fills the families of the catalogue that are the daemon's. Counters begin when this
  // object is made, unless they say otherwise.
  void AddTo(Exposition& exposition) const;

 private:
  const int64_t started_realtime_ns_;
  prometheus::Registry registry_;
  prometheus::Histogram& scrape_duration_;
  prometheus::Family<prometheus::Counter>& series_dropped_;
  prometheus::Counter& log_lines_dropped_;
  std::array<prometheus::Counter*, kRefusalCount> refusals_{};
  prometheus::Family<prometheus::Gauge>& unmeasured_;
  prometheus::Family<prometheus::Counter>& extension_faults_;
  // All pairs are served, so that a query gets 0 and not nothing.
  ByFinding<prometheus::Gauge*> findings_{};
  std::mutex mutex_;                                   // guards what follows
  std::set<uint64_t> users_with_drops_;                // at most collector::kMaxTroubledUsers
  prometheus::Gauge* unmeasured_processes_ = nullptr;  // absent: null
};

}  // namespace nccl_exporter::exporter
