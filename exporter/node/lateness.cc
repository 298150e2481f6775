// SPDX-License-Identifier: Apache-2.0
#include "exporter/node/lateness.h"

namespace nccl_exporter::exporter {

bool IsLate(const ArrivalWindow& recent) {
  const double compared = static_cast<double>(recent.counts.compared);
  return recent.counts.compared >= kLateOperations &&
         static_cast<double>(recent.counts.last) > kLateShare * compared &&
         static_cast<double>(recent.counts.lateness_ns) / 1e9 >
             kLateSecondsPerSecond * recent.seconds;
}

}  // namespace nccl_exporter::exporter
