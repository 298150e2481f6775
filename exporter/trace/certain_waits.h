// SPDX-License-Identifier: Apache-2.0
// CertainWaits(), the collectives of a trace in which one rank surely entered last, and how long
// the others waited for it.
#pragma once

#include <cstddef>
#include <vector>

#include "exporter/trace/clock_alignment.h"

namespace nccl_exporter::exporter {

// Clocks against which the others are bounded one after the other, which is each time as much work
// as the alignment: those of the GPUs that were last most often. The collectives in which another
// GPU was last are compared by way of the first node's clock: fewer of their orders are certain.
inline constexpr size_t kMostAxes = 64;

// Waits in one collective, among the ranks that the trace has: another one may have been later
// still.
struct CertainWait {
  size_t meeting = 0;  // of ClockAlignment::meetings()
  size_t last = 0;     // member that entered after all others
  // By member: how long it waited for the last one. Of the last: 0.
  std::vector<OffsetBounds> waits_ns;
  // By member: how much of its wait was before the last one had called, so the CPU was late. The
  // rest was after the call: the GPU of the last one was busy.
  std::vector<OffsetBounds> launch_ns;
};

// In the order of the meetings. Those without a certain last rank are left out.
std::vector<CertainWait> CertainWaits(const ClockAlignment& alignment);

}  // namespace nccl_exporter::exporter
