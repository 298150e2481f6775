// SPDX-License-Identifier: Apache-2.0
// MetricsRequests, a scrape of the daemon as ExportMetricsServiceRequest of OTLP. For one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "exporter/exposition/exposition.h"

namespace nccl_exporter::exporter::otlp {

enum class HistogramForm : uint8_t { kExplicit, kExponential };

class MetricsRequests {
 public:
  // `resource` has the attributes of the one resource; all labels of a series are attributes of its
  // point. Histograms without native buckets are explicit in any case.
  MetricsRequests(const Labels& resource, HistogramForm form);

  // `families` are untrusted: MetricFamily messages, each preceded by its length. All points have
  // the same time, and counters and histograms the start that the daemon states. Names, and so
  // units, are those of the scrape: the field `unit` is empty, since receivers append it.
  // A series of the last request that is gone has a point without a value, once, as a scraper marks
  // it stale. Nothing where the families are not understood; then the last request stays the last.
  std::optional<std::string> Make(std::string_view families, int64_t time_ns);

 private:
  enum class Kind : uint8_t { kGauge, kSum, kHistogram, kExponential };
  struct Fields;  // numbers of fields that differ by kind
  struct Family {
    std::string head;  // fields name and description of Metric
    Kind kind = Kind::kGauge;
    std::string points;  // fields of the message of this kind
    std::string stale;   // points of series that the request before had
    // Where the point of each series is in `points`, by the hash of its attributes.
    std::unordered_map<size_t, std::pair<size_t, size_t>> place_of;
  };
  using Families = std::map<std::string, Family, std::less<>>;

  static const Fields& FieldsOf(Kind kind);
  // False where the message is not understood.
  bool Take(std::string_view message);
  bool AddPoint(std::string_view metric, Family& family) const;
  void AddStale(const Family& last, Family& family) const;
  std::string Request() const;

  const HistogramForm form_;
  std::string resource_;  // the message Resource
  uint64_t time_ns_ = 0;
  Families last_, current_;
};

}  // namespace nccl_exporter::exporter::otlp
