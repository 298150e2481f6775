// SPDX-License-Identifier: Apache-2.0
// Encoders, one per exposition format. Any thread.
#pragma once

#include <string>

#include "exporter/exposition/exposition.h"
#include "exporter/exposition/negotiation.h"

namespace nccl_exporter::exporter {

// Appends the whole scrape body to `out`. Families without series are left out.
// Text 0.0.4, which every scraper reads, knows neither units nor info metrics. OpenMetrics 1.0.0,
// which Prometheus asks for first, names families without the suffix of their samples.
void Encode(Format format, const Exposition& exposition, std::string& out);

// Protocol buffers, io.prometheus.client.MetricFamily (proto/metric_family.proto): the only format
// with native histograms. Each message is preceded by its length. A histogram that has a native
// scale carries the native part and the classic one. Counters and histograms carry the time since
// which they count.
void EncodeProtobuf(const Exposition& exposition, std::string& out);

}  // namespace nccl_exporter::exporter
