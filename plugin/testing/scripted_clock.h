// SPDX-License-Identifier: Apache-2.0
// Clock of the tests of this room, which stands still unless it is moved. Linked with
// --wrap=clock_gettime.
#pragma once

#include <cstdint>

namespace nccl_exporter::plugin {

struct ScriptedClock {
  static inline uint64_t now_ns = 1'000'000'000;
  static inline int64_t realtime_offset_ns = 0;  // CLOCK_REALTIME less all other clocks
  static inline uint64_t readings = 0;
};

}  // namespace nccl_exporter::plugin
