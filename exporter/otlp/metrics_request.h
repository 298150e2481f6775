// SPDX-License-Identifier: Apache-2.0
// MetricsRequests, a scrape of the daemon as ExportMetricsServiceRequest of OTLP. For one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "exporter/exposition/plain_families.h"

namespace nccl_exporter::exporter::otlp {

enum class HistogramForm : uint8_t { kExplicit, kExponential };

class MetricsRequests {
 public:
  // `resource` has the attributes of the one resource; all labels of a series are attributes of its
  // point. Histograms without native buckets are explicit in any case.
  MetricsRequests(const Labels& resource, HistogramForm form);

  // All points have the same time, and counters and histograms the start that the daemon states.
  // Names, and so units, are those of the scrape: the field `unit` is empty, since receivers append
  // it. A series of the last request that is gone has a point without a value, once, as a scraper
  // marks it stale. Of two families with one name the first is taken.
  std::string Make(std::vector<PlainFamily> families, int64_t time_ns);

 private:
  const HistogramForm form_;
  std::string resource_;                     // the message Resource
  std::map<std::string, PlainFamily> last_;  // by name, each with its series in order
};

}  // namespace nccl_exporter::exporter::otlp
