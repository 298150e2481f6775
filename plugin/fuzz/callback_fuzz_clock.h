// SPDX-License-Identifier: Apache-2.0
// CLOCK_MONOTONIC of a fuzzed session: it moves with each reading, and by leaps on request, so that
// a second of quiet and the retention time cost nothing and a seed gives the same session again.
// Linked with --wrap=clock_gettime.
#pragma once

#include <cstdint>

namespace nccl_exporter::plugin::fuzz {

uint64_t ClockNs();  // without moving it
void AdvanceClock(uint64_t ns);

}  // namespace nccl_exporter::plugin::fuzz
