// SPDX-License-Identifier: Apache-2.0
// Instant queries of Prometheus' HTTP API, as Thanos, Mimir and VictoriaMetrics have it as well.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/cli/client/plain_get.h"
#include "exporter/cli/job/http_config.h"
#include "exporter/cli/job/prometheus_address.h"

namespace nccl_exporter::exporter {

// For one query. Prometheus' own limit (--query.timeout) is longer, and a person waits.
inline constexpr std::chrono::milliseconds kQueryPatience{30000};
// The labels of 4,096 ranks in 30 communicators take 40 MB.
inline constexpr size_t kMostQueryBytes = size_t{64} << 20;
// Of one answer. A server of many stores may have one for each.
inline constexpr size_t kMostWarnings = 4;

struct Sample {
  std::map<std::string, std::string> labels;
  double time = 0;  // seconds since the epoch, of the server
  double value = 0;

  // Empty if it has no such label, as for Prometheus.
  const std::string& Label(const std::string& name) const;
};

struct QueryAnswer {
  std::vector<Sample> samples;  // in the order of their labels
  std::string fault;            // why there are none; empty: this is the answer
  // Why it may be a part only, as the server says: `warnings` of Prometheus and Thanos,
  // `isPartial` of VictoriaMetrics. Texts that a terminal only shows.
  std::vector<std::string> warnings = {};
};

using AskPrometheus = std::function<QueryAnswer(const std::string& query)>;
// Asks the server at `address`, for as long as kQueryPatience.
AskPrometheus PrometheusAt(PrometheusAddress address, HttpConfig config);

// The vector in an answer, from the server that `where` names. Pure, for any thread. Values may be
// anything, and labels any text.
QueryAnswer SamplesIn(const PlainAnswer& answer, const std::string& where);

// As a value of a matcher in PromQL, with its quotes.
std::string Quoted(std::string_view text);
// A text that a regular expression of PromQL matches as it is.
std::string Literal(std::string_view text);

}  // namespace nccl_exporter::exporter
