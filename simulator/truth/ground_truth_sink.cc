// SPDX-License-Identifier: Apache-2.0
#include "simulator/truth/ground_truth_sink.h"

#include <algorithm>

namespace nccl_exporter::sim {

void LaunchMember::Cover(uint64_t start_ns, uint64_t stop_ns) {
  if (!interval) interval = Interval{start_ns, stop_ns};
  interval->start_ns = std::min(interval->start_ns, start_ns);
  interval->stop_ns = std::max(interval->stop_ns, stop_ns);
}

}  // namespace nccl_exporter::sim
