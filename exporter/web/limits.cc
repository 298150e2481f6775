// SPDX-License-Identifier: Apache-2.0
// The limits from where each is used.
#include "exporter/web/limits.h"

#include <chrono>

#include "collector/node_snapshot.h"
#include "exporter/exposition/native_histogram.h"
#include "exporter/findings/finding.h"
#include "exporter/findings/hangs/hang_memory.h"
#include "exporter/findings/late/bandwidth_past.h"
#include "exporter/findings/node_judge.h"
#include "exporter/http/answer_budget.h"
#include "exporter/http/basic_auth.h"
#include "exporter/http/http_server.h"
#include "exporter/ledger/node_history.h"
#include "exporter/series/exposition_builder.h"
#include "exporter/series/labels/new_set_budget.h"
#include "exporter/series/labels/series_labels.h"
#include "exporter/web/scrape_page.h"

namespace nccl_exporter::exporter {
namespace {

template <typename Number>
double Value(Number number) {
  return static_cast<double>(number);
}

double InSeconds(std::chrono::duration<double> duration) { return duration.count(); }

}  // namespace

std::vector<Limit> Limits(size_t series_limit) {
  return {
      {Metric::kLimit, "series", Value(series_limit)},
      {Metric::kLimit, "new_label_sets", kNewSeriesSets.at_once},
      {Metric::kLimit, "new_label_sets_per_minute", kNewSeriesSets.per_minute},
      {Metric::kLimit, "new_info_label_sets", kNewInfoSets.at_once},
      {Metric::kLimit, "new_info_label_sets_per_minute", kNewInfoSets.per_minute},
      {Metric::kLimitBytes, "labels_of_series", Value(kLabelBytesPerSample)},
      {Metric::kLimit, "segments", Value(collector::kMaxSegments)},
      {Metric::kLimit, "segments_per_user", Value(collector::kMaxSegmentsPerUser)},
      {Metric::kLimit, "communicators", Value(collector::kMaxCommunicators)},
      {Metric::kLimit, "slots_per_user", Value(collector::kMaxSlotsPerUser)},
      {Metric::kLimit, "compared_communicators", Value(collector::kMaxRings)},
      {Metric::kLimit, "compared_communicators_per_user", Value(collector::kMaxRingsPerUser)},
      {Metric::kLimit, "native_buckets", Value(kNativeBucketLimit)},
      {Metric::kLimitBytes, "label_value", Value(kLabelValueLimitBytes)},
      {Metric::kLimit, "scrapes_per_address", Value(kScrapesPerAddress)},
      {Metric::kLimitBytes, "answer_bytes", Value(kAnswerBudgetBytes)},
      {Metric::kLimitSeconds, "scrape", InSeconds(kDefaultScrapeBudget)},
      {Metric::kLimit, "connections", Value(kConnectionLimit)},
      {Metric::kLimit, "connections_per_address", Value(kConnectionsPerAddress)},
      {Metric::kLimitBytes, "node_answer", Value(kNodeAnswerBytes)},
      {Metric::kLimitBytes, "url", Value(kUrlLimitBytes)},
      {Metric::kLimitBytes, "headers", Value(kHeadersLimitBytes)},
      {Metric::kLimitBytes, "request", Value(kRequestBufferBytes)},
      {Metric::kLimitSeconds, "idle", InSeconds(kIdleLimit)},
      {Metric::kLimitSeconds, "keep_alive", InSeconds(kKeepAliveLimit)},
      {Metric::kLimitSeconds, "answer", InSeconds(kAnswerLimit)},
      {Metric::kLimit, "password_checks", Value(kPasswordChecksPerAddress)},
      {Metric::kLimit, "password_checks_in_all", Value(kWaitingPasswordChecks)},
      {Metric::kLimit, "history_series", Value(kHistorySeries)},
      {Metric::kLimit, "history_ranks", Value(kHistoryRanks)},
      {Metric::kLimit, "history_traffic", Value(kHistoryTraffic)},
      {Metric::kLimit, "history_losses", Value(kHistoryLosses)},
      {Metric::kLimit, "absent_ranks", Value(kMaxAbsentRanks)},
      {Metric::kLimit, "bandwidths", Value(kMostPasts)},
      {Metric::kLimit, "bandwidths_per_user", Value(kMostPastsPerUser)},
      {Metric::kLimit, "findings_per_user", Value(kMostFindingsPerUser)},
      {Metric::kLimit, "ranks_per_finding", Value(kMostFoundRanks)},
  };
}

}  // namespace nccl_exporter::exporter
