// SPDX-License-Identifier: Apache-2.0
// Protocol buffers, io.prometheus.client.MetricFamily (proto/metric_family.proto): the only format with native
// histograms.
#pragma once

#include "exporter/exposition/encoder.h"

namespace nccl_exporter {

// Messages each preceded by its length. Histograms that have a native scale carry the native part and the classic one
// beside it; counters and histograms tell since when they count.
class ProtobufEncoder final : public Encoder {
 public:
  void Encode(const Exposition& exposition, std::string& out) const override;
};

}  // namespace nccl_exporter
