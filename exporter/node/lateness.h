// SPDX-License-Identifier: Apache-2.0
// Lateness of a rank, as the page and `top` show it: by the numbers of the alert rules.
#pragma once

#include <cstdint>

#include "exporter/node/node_history.h"

namespace nccl_exporter::exporter {

// A rank is late if both are true of the latest kLateWindowSeconds:
// - It was the last to enter more than kLateShare of the operations that were compared.
// - Others waited for it for more than kLateSecondsPerSecond of the time.
// These are the numbers of comm_rank:nccl_last_arrivals:share in
// deploy/prometheus/nccl-exporter.rules.yml; a test compares them. The alert has a time for which
// it must hold; the page and `top` want kLateOperations instead.
inline constexpr double kLateWindowSeconds = 120;
inline constexpr double kLateShare = 0.8;
inline constexpr double kLateSecondsPerSecond = 0.03;
inline constexpr uint64_t kLateOperations = 10;

inline bool IsLate(const ArrivalWindow& recent) {
  const double compared = static_cast<double>(recent.counts.compared);
  return recent.counts.compared >= kLateOperations &&
         static_cast<double>(recent.counts.last) > kLateShare * compared &&
         static_cast<double>(recent.counts.lateness_ns) / 1e9 >
             kLateSecondsPerSecond * recent.seconds;
}

}  // namespace nccl_exporter::exporter
