// SPDX-License-Identifier: Apache-2.0
// Encoders, one per exposition format. They have no state: one instance serves all threads.
#pragma once

#include <string>

#include "exporter/exposition/exposition.h"

namespace nccl_exporter::exporter {

class Encoder {
 public:
  virtual ~Encoder() = default;

  // Appends the whole scrape body to `out`. Families without series are left out.
  virtual void Encode(const Exposition& exposition, std::string& out) const = 0;
};

// Prometheus text format 0.0.4, which every scraper reads. It knows neither units nor info metrics.
class TextEncoder final : public Encoder {
 public:
  void Encode(const Exposition& exposition, std::string& out) const override;
};

// OpenMetrics text format 1.0.0, which Prometheus asks for first. Families are named without the
// suffix of their samples, and the text ends with # EOF.
class OpenMetricsEncoder final : public Encoder {
 public:
  void Encode(const Exposition& exposition, std::string& out) const override;
};

// Protocol buffers, io.prometheus.client.MetricFamily (proto/metric_family.proto): the only format
// with native histograms. Each message is preceded by its length. A histogram that has a native
// scale carries the native part and the classic one. Counters and histograms carry the time since
// which they count.
class ProtobufEncoder final : public Encoder {
 public:
  void Encode(const Exposition& exposition, std::string& out) const override;
};

}  // namespace nccl_exporter::exporter
