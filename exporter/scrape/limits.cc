// SPDX-License-Identifier: Apache-2.0
// The limits from where each is used.
#include "exporter/scrape/limits.h"

#include <chrono>

#include "collector/node_snapshot.h"
#include "exporter/exposition/native_histogram.h"
#include "exporter/http/basic_auth.h"
#include "exporter/http/http_server.h"
#include "exporter/node/node_history.h"
#include "exporter/scrape/scrape_page.h"
#include "exporter/series/series_labels.h"

namespace nccl_exporter {
namespace {

template <typename Number>
double Value(Number number) {
  return static_cast<double>(number);
}

double Seconds(std::chrono::duration<double> duration) { return duration.count(); }

}  // namespace

std::vector<Limit> Limits(size_t series_limit) {
  return {
      {"series", Value(series_limit)},
      {"segments", Value(kMaxSegments)},
      {"segments_per_user", Value(kMaxSegmentsPerUser)},
      {"communicators", Value(kMaxCommunicators)},
      {"slots_per_user", Value(kMaxSlotsPerUser)},
      {"compared_communicators", Value(kMaxRings)},
      {"compared_communicators_per_user", Value(kMaxRingsPerUser)},
      {"native_buckets", Value(kNativeBucketLimit)},
      {"label_value_bytes", Value(kLabelValueLimitBytes)},
      {"concurrent_scrapes", Value(kMaxConcurrentScrapes)},
      {"scrape_seconds", Seconds(kDefaultScrapeBudget)},
      {"connections", Value(kConnectionLimit)},
      {"connections_per_address", Value(kConnectionsPerAddress)},
      {"url_bytes", Value(kUrlLimitBytes)},
      {"headers_bytes", Value(kHeadersLimitBytes)},
      {"request_bytes", Value(kRequestBufferBytes)},
      {"idle_seconds", Seconds(kIdleLimit)},
      {"keep_alive_seconds", Seconds(kKeepAliveLimit)},
      {"answer_seconds", Seconds(kAnswerLimit)},
      {"password_checks", Value(kMaxWaitingChecks)},
      {"history_series", Value(kHistorySeries)},
      {"history_ranks", Value(kHistoryRanks)},
  };
}

}  // namespace nccl_exporter
