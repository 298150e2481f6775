// SPDX-License-Identifier: Apache-2.0
// The metrics of the daemon itself.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/exposition/exposition.h"
#include "exporter/findings/finding.h"
#include "exporter/http/refusal.h"
#include "exporter/series/snapshot_families.h"
#include "exporter/web/limits.h"

namespace nccl_exporter::exporter {

// Upper bounds of the durations of scrapes in seconds: from a node with a few communicators to one
// at the series cap on a busy CPU.
inline constexpr std::array kScrapeBounds{0.001, 0.0025, 0.005, 0.01, 0.025,
                                          0.05,  0.1,    0.25,  0.5,  1.0};

// Safe to use from any thread.
class DaemonMetrics {
 public:
  // `commit` as in exporter/commit.h.
  explicit DaemonMetrics(std::vector<Limit> limits = {}, std::string_view commit = {});

  void ObserveScrape(std::chrono::nanoseconds duration);
  void CountDrops(const SeriesDrops& drops);
  void Count(Refusal refusal);
  // Lines that the log dropped since the daemon's start.
  void SetDroppedLogLines(uint64_t lines);
  // Replaces those of the judgement before.
  void SetFindings(const std::vector<Finding>& findings);
  // Absent for nothing.
  void SetUnmeasuredProcesses(std::optional<uint64_t> count);

  // Fills the families of the catalogue that are the daemon's. Counters begin when this
  // object is made, unless they say otherwise.
  void AddTo(Exposition& exposition) const;

 private:
  const int64_t started_realtime_ns_;
  const std::vector<Limit> limits_;
  const std::string commit_;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<uint64_t> scrapes_ = std::vector<uint64_t>(kScrapeBounds.size() + 1);  // by duration
  double scrape_seconds_ = 0;
  // By uid, of the first collector::kMaxTroubledUsers users, and of all others together. There from
  // the start, so that the family is never absent.
  std::map<std::string, std::array<uint64_t, kSeriesLossCount>> drops_;
  std::array<uint64_t, kRefusalCount> refusals_{};
  uint64_t dropped_log_lines_ = 0;
  std::optional<uint64_t> unmeasured_processes_;
  // All pairs are served, so that a query gets 0 and not nothing.
  std::array<std::array<uint64_t, kCountOf<Severity>>, kCountOf<FindingKind>> findings_{};
};

}  // namespace nccl_exporter::exporter
