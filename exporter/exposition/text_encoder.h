// SPDX-License-Identifier: Apache-2.0
// Prometheus text format 0.0.4: what every scraper reads.
#pragma once

#include "exporter/exposition/encoder.h"

namespace nccl_exporter {

class TextEncoder final : public Encoder {
 public:
  void Encode(const Exposition& exposition, std::string& out) const override;
};

}  // namespace nccl_exporter
