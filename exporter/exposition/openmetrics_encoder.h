// SPDX-License-Identifier: Apache-2.0
// OpenMetrics text format 1.0.0: what Prometheus asks for first.
#pragma once

#include "exporter/exposition/encoder.h"

namespace nccl_exporter {

class OpenMetricsEncoder final : public Encoder {
 public:
  void Encode(const Exposition& exposition, std::string& out) const override;
};

}  // namespace nccl_exporter
