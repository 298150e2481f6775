// SPDX-License-Identifier: Apache-2.0
// The limits from where each is used.
#include "exporter/web/limits.h"

#include <chrono>

#include "collector/node_snapshot.h"
#include "exporter/exposition/native_histogram.h"
#include "exporter/findings/finding.h"
#include "exporter/findings/hangs/hang_memory.h"
#include "exporter/findings/node_judge.h"
#include "exporter/http/answer_budget.h"
#include "exporter/http/basic_auth.h"
#include "exporter/http/http_server.h"
#include "exporter/ledger/node_history.h"
#include "exporter/series/exposition_builder.h"
#include "exporter/series/labels/label_cache.h"
#include "exporter/series/labels/series_labels.h"
#include "exporter/web/scrape_page.h"

namespace nccl_exporter::exporter {
namespace {

double InSeconds(std::chrono::duration<double> duration) { return duration.count(); }

}  // namespace

std::vector<Limit> Limits(size_t series_limit) {
  return {
      {Metric::kLimit, "series", static_cast<double>(series_limit)},
      {Metric::kLimit, "new_label_sets", kNewSeriesSets.at_once},
      {Metric::kLimit, "new_label_sets_per_minute", kNewSeriesSets.per_minute},
      {Metric::kLimit, "new_info_label_sets", kNewInfoSets.at_once},
      {Metric::kLimit, "new_info_label_sets_per_minute", kNewInfoSets.per_minute},
      {Metric::kLimitBytes, "labels_of_series", kLabelBytesPerSample},
      {Metric::kLimit, "segments", collector::kMaxSegments},
      {Metric::kLimit, "segments_per_user", collector::kMaxSegmentsPerUser},
      {Metric::kLimit, "communicators", collector::kMaxCommunicators},
      {Metric::kLimit, "slots_per_user", collector::kMaxSlotsPerUser},
      {Metric::kLimit, "compared_communicators", collector::kMaxRings},
      {Metric::kLimit, "compared_communicators_per_user", collector::kMaxRingsPerUser},
      {Metric::kLimit, "host_processes", collector::kMostHostProcesses},
      {Metric::kLimit, "host_processes_per_user", collector::kMostHostProcessesPerUser},
      {Metric::kLimit, "native_buckets", kNativeBucketLimit},
      {Metric::kLimitBytes, "label_value", kLabelValueLimitBytes},
      {Metric::kLimitBytes, "nccl_variables", kNcclVariablesLimitBytes},
      {Metric::kLimit, "scrapes_per_address", kScrapesPerAddress},
      {Metric::kLimitBytes, "answer_bytes", kAnswerBudgetBytes},
      {Metric::kLimitSeconds, "scrape", InSeconds(kDefaultScrapeBudget)},
      {Metric::kLimit, "connections", kConnectionLimit},
      {Metric::kLimit, "connections_per_address", kConnectionsPerAddress},
      {Metric::kLimitBytes, "node_answer", kNodeAnswerBytes},
      {Metric::kLimitBytes, "url", kUrlLimitBytes},
      {Metric::kLimitBytes, "headers", kHeadersLimitBytes},
      {Metric::kLimitBytes, "request", kRequestBufferBytes},
      {Metric::kLimitSeconds, "idle", InSeconds(kIdleLimit)},
      {Metric::kLimitSeconds, "keep_alive", InSeconds(kKeepAliveLimit)},
      {Metric::kLimitSeconds, "answer", InSeconds(kAnswerLimit)},
      {Metric::kLimit, "password_checks", kPasswordChecksPerAddress},
      {Metric::kLimit, "password_checks_in_all", kWaitingPasswordChecks},
      {Metric::kLimit, "history_series", kHistorySeries},
      {Metric::kLimit, "history_ranks", kHistoryRanks},
      {Metric::kLimit, "history_traffic", kHistoryTraffic},
      {Metric::kLimit, "history_losses", kHistoryLosses},
      {Metric::kLimit, "absent_ranks", kMaxAbsentRanks},
      {Metric::kLimit, "findings_per_user", kMostFindingsPerUser},
      {Metric::kLimit, "ranks_per_finding", kMostFoundRanks},
  };
}

}  // namespace nccl_exporter::exporter
