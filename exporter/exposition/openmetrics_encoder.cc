// SPDX-License-Identifier: Apache-2.0
// OpenMetrics 1.0.0: families are named without the suffix of their samples, and the text ends with # EOF.
#include "exporter/exposition/openmetrics_encoder.h"

#include <string_view>

#include "exporter/exposition/escaped_text.h"
#include "exporter/exposition/number_text.h"
#include "exporter/exposition/sample_text.h"

namespace nccl_exporter {
namespace {

std::string_view TypeName(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return "counter";
    case MetricType::kHistogram:
      return "histogram";
    case MetricType::kInfo:
      return "info";
    case MetricType::kGauge:
      break;
  }
  return "gauge";
}

}  // namespace

void OpenMetricsEncoder::Encode(const Exposition& exposition, std::string& out) const {
  const SampleText samples(exposition, CanonicalBoundText);
  for (const Family& family : exposition.families) {
    if (family.series.empty()) continue;
    const std::string_view name = SampleFamilyName(family);
    out.append("# TYPE ").append(name).append(" ").append(TypeName(family.type)).append("\n");
    if (NameEndsInUnit(name, family.unit)) {
      out.append("# UNIT ").append(name).append(" ").append(family.unit).append("\n");
    }
    out.append("# HELP ").append(name).append(" ");
    AppendEscaped(family.help, true, out);
    out.append("\n");
    samples.Append(family, out);
  }
  out.append("# EOF\n");
}

}  // namespace nccl_exporter
