// SPDX-License-Identifier: Apache-2.0
// Times of a communicator's latest completions, as they are in its segment.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "proto/shm_layout.h"

namespace nccl_exporter {

struct CompletionTimes {
  int64_t call_ns;
  int64_t start_ns;
  int64_t stop_ns;
  int64_t delivered_ns;
};

// `slot` is the communicator's in a copy of the segment.
inline std::vector<CompletionTimes> CompletionsIn(const char* slot) {
  std::vector<CompletionTimes> completions;
  for (size_t i = 0; i < layout::kCompletionEntries; ++i) {
    const auto word = [&](size_t field) {
      int64_t value = 0;
      const size_t entry =
          offsetof(layout::CommunicatorSlot, completions) + i * sizeof(layout::CompletionEntry);
      std::memcpy(&value, slot + entry + field, sizeof(value));
      return value;
    };
    if (word(offsetof(layout::CompletionEntry, ticket)) == 0) continue;
    completions.push_back({.call_ns = word(offsetof(layout::CompletionEntry, call_ns)),
                           .start_ns = word(offsetof(layout::CompletionEntry, start_ns)),
                           .stop_ns = word(offsetof(layout::CompletionEntry, stop_ns)),
                           .delivered_ns = word(offsetof(layout::CompletionEntry, delivered_ns))});
  }
  return completions;
}

// By the distance of the clocks, of which the simulator's deliveries give an upper bound, no call
// is later than the start of its kernel. Their median: the simulator's threads are not at the same
// time, so that single ones may be off. Deliveries that are far below the upper tenth do not count:
// at the end of a job the simulator delivers what is left without waiting for its time.
inline void ExpectNoLateCall(const std::vector<CompletionTimes>& completions) {
  // Drift of the GPU's clock in half a second, and units of 1024 ns in handles.
  constexpr int64_t kSlackNs = 5000;
  constexpr int64_t kEarlyNs = 50'000;
  if (completions.empty()) return;
  std::vector<int64_t> distances_ns;
  for (const CompletionTimes& times : completions)
    distances_ns.push_back(times.delivered_ns - times.stop_ns);
  std::ranges::sort(distances_ns);
  const int64_t least_ns = distances_ns[distances_ns.size() * 9 / 10] - kEarlyNs;
  const auto timely = std::ranges::lower_bound(distances_ns, least_ns);
  const int64_t median_ns = timely[(distances_ns.end() - timely) / 2];
  for (const CompletionTimes& times : completions) {
    ASSERT_LE(times.call_ns - times.start_ns, median_ns + kSlackNs);
  }
}

}  // namespace nccl_exporter
