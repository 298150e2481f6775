// SPDX-License-Identifier: Apache-2.0
// Limits of the daemon, as nccl_exporter_limit and its families in bytes and seconds.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "proto/metric_catalogue.h"

namespace nccl_exporter::exporter {

struct Limit {
  Metric family;          // of the limit's unit
  std::string_view name;  // value of the label `limit`; that of the reason under which it refuses,
                          // where there is one
  double value;
};

std::vector<Limit> Limits(size_t series_limit);

}  // namespace nccl_exporter::exporter
