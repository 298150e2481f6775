// SPDX-License-Identifier: Apache-2.0
// Operations that are counted and not followed, by job: the condition of NCCLExporterEventsDropped
// (docs/alerts.md) over Thresholds::losses_window. Also those of communicators without a slot,
// which are lost for the life of their process.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/findings/finding.h"
#include "exporter/findings/thresholds.h"
#include "exporter/ledger/local_communicators.h"
#include "exporter/ledger/node_history.h"
#include "proto/loss.h"

namespace nccl_exporter::exporter {

// Not thread-safe: its owner locks.
class LostOperations {
 public:
  explicit LostOperations(const Thresholds& times) : times_(times) {}

  // Judges the newest window of `history`, which has recorded `node` just before. A history shorter
  // than the window finds nothing. Losses that are a choice of the plugin, or the end of a job, do
  // not count.
  void Record(const collector::NodeSnapshot& node, const NodeHistory& history);

  // By the latest Record(): at most one per job.
  std::vector<Finding> Findings() const;

 private:
  struct JobLosses {
    std::string job;
    uint64_t operations = 0;  // started, of the ranks that the history has
    uint64_t lost = 0;
    uint64_t communicators = 0;  // without a slot, of living processes, in their lives
    std::array<uint64_t, kLossCount> by_cause{};
    int64_t since_realtime_ns = 0;  // first loss of the run that goes on
    bool is_found = false;          // more than Thresholds::lost_share are lost, or communicators
  };

  static Finding FindingOf(const JobKey& key, const JobLosses& losses);

  Thresholds times_;
  std::map<JobKey, JobLosses> jobs_;
};

}  // namespace nccl_exporter::exporter
