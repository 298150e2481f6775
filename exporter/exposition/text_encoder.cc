// SPDX-License-Identifier: Apache-2.0
// Text 0.0.4: HELP and TYPE name the samples as they are; it knows neither units nor info metrics.
#include "exporter/exposition/text_encoder.h"

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
    case MetricType::kGauge:
    case MetricType::kInfo:
      break;
  }
  return "gauge";
}

}  // namespace

void TextEncoder::Encode(const Exposition& exposition, std::string& out) const {
  const SampleText samples(exposition, BoundText);
  for (const Family& family : exposition.families) {
    if (family.series.empty()) continue;
    out.append("# HELP ").append(family.name).append(" ");
    AppendEscaped(family.help, false, out);
    out.append("\n# TYPE ").append(family.name).append(" ").append(TypeName(family.type)).append("\n");
    samples.Append(family, out);
  }
}

}  // namespace nccl_exporter
