// SPDX-License-Identifier: Apache-2.0
// What NCCL is asked for: one pure function from what is known at the first init to an event mask, with the reason.
#pragma once

#include <cstdint>

#include "proto/data_quality.h"

namespace nccl_exporter {

enum class KernelTiming : uint8_t { kAuto, kOn, kOff };  // NCCL_EXPORTER_KERNEL_TIMING

struct PolicyInput {
  int api_version = 0;   // 1 to 7
  int nccl_version = 0;  // as ncclGetVersion reports it; 0: unknown
  KernelTiming kernel_timing = KernelTiming::kAuto;
  uint64_t shared_memory_free_bytes = 0;  // of /dev/shm
  uint32_t local_ranks = 1;               // processes of the job on this node, as far as the environment tells
};

struct EventPolicy {
  int mask = 0;
  TimingSource source = TimingSource::kNone;
  TimingReason reason = TimingReason::kDefault;
};

// What NCCL takes from /dev/shm for kernel timing per rank: its proxy's pool (34 MB on 2.28.9) and as much again in
// reserve.
inline constexpr uint64_t kKernelTimingSharedMemoryBytes = 64 << 20;

EventPolicy DecideEvents(const PolicyInput& input);

}  // namespace nccl_exporter
