// SPDX-License-Identifier: Apache-2.0
// Queries of Prometheus' HTTP API, as Thanos, Mimir and VictoriaMetrics have it as well.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/cli/client/http_address.h"
#include "exporter/cli/client/http_config.h"
#include "exporter/cli/client/plain_get.h"

namespace nccl_exporter::exporter {

// For one query. Prometheus' own limit (--query.timeout) is longer, and a person waits.
inline constexpr std::chrono::milliseconds kQueryPatience{30000};
// All recorded series of 4,096 ranks that hang in 30 communicators take 40 MB.
inline constexpr size_t kMostQueryBytes = size_t{64} << 20;
// In one answer. A server of many stores may have one for each.
inline constexpr size_t kMostWarnings = 4;

using SampleLabels = std::map<std::string, std::string>;
// Empty if there is no such label, as for Prometheus.
const std::string& LabelIn(const SampleLabels& labels, const std::string& name);

struct Point {
  double time = 0;  // seconds since the epoch, of the server
  double value = 0;
};

struct Sample {
  SampleLabels labels;
  double time = 0;  // of the last point where there are several
  double value = 0;
  std::vector<Point> points = {};  // of a query for a range: `x[1h]`, `f(x)[1h:1m]`

  const std::string& Label(const std::string& name) const { return LabelIn(labels, name); }
};

using Samples = std::vector<Sample>;

struct QueryAnswer {
  Samples samples;  // in the order of their labels
  // Why it may be a part only, as the server says: `warnings` of Prometheus and Thanos,
  // `isPartial` of VictoriaMetrics. Texts that a terminal only shows.
  std::vector<std::string> warnings = {};
};

// `time`: of the answer, seconds since the epoch; 0: now.
using AskPrometheus = std::function<QueryAnswer(const std::string& query, double time)>;
// Asks the server at `address`, for as long as kQueryPatience. Throws as SamplesIn().
AskPrometheus PrometheusAt(HttpAddress address, HttpConfig config);

// The vector or the matrix in an answer, from the server that `where` names. Pure, for any thread.
// Values may be anything, and labels any text. Throws std::runtime_error with one line where there
// is none.
QueryAnswer SamplesIn(const PlainAnswer& answer, const std::string& where);

// As a value of a matcher in PromQL, with its quotes.
std::string Quoted(std::string_view text);

}  // namespace nccl_exporter::exporter
