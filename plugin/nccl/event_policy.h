// SPDX-License-Identifier: Apache-2.0
// Policy of what NCCL is asked for: one pure function from what is known at the first init to an
// event mask, with the reason.
#pragma once

#include <cstdint>

#include "plugin/nccl/nccl_release.h"
#include "proto/timing_source.h"

namespace nccl_exporter::plugin {

enum class KernelTiming : uint8_t { kAuto, kOn, kOff };  // NCCL_EXPORTER_KERNEL_TIMING

struct PolicyInput {
  int api_version = 0;   // 1 to 7
  int nccl_version = 0;  // as ncclGetVersion reports it; 0: unknown
  KernelTiming kernel_timing = KernelTiming::kAuto;
  uint64_t shared_memory_free_bytes = 0;  // of /dev/shm
  uint32_t local_ranks = 1;  // processes of the job on this node, as far as the environment shows
  bool allgatherv_is_off = false;      // NCCL_ALLGATHERV_ENABLE=0, as NCCL reads it
  uint32_t milli_cpus_per_rank = ~0u;  // CPUs that each of them may use, in thousandths
  // A weak compare-exchange may fail although the value is the expected one.
  bool weak_exchange_may_fail = false;
  // Whether kernels by NVLink SHARP over buffers that the job registers are possible.
  bool may_register_nvls_buffers = false;
  bool shares_resources = false;  // communicators share a proxy, as the environment asks
  bool is_chained = false;        // another plugin has a say in the mask
};

// Policy for one copy of NCCL.
struct EventPolicy {
  int api_version = 0;  // 0: none was decided
  int nccl_version = 0;
  int mask = 0;
  TimingSource source = TimingSource::kNone;
  TimingReason reason = TimingReason::kDefault;
  // Times of a release that the table does not know count only after they have agreed with the
  // CPU's.
  bool times_are_on_probation = false;
  DriftCauses causes = {};
  // Whether the steps of proxy operations may be asked for, at any time (network_windows.h).
  bool may_time_network = false;
  // Whether another program may change the mask.
  bool is_mask_watched = false;
  // Bits of NCCL's mask that say nothing about who has changed it: ProxyStep (network_windows.h),
  // and with a chained plugin all but the events of this one and KernelCh.
  int shared_bits = 0;
};

// For kernel timing NCCL takes a pool from /dev/shm for each communicator of each rank, at its
// first operation (ncclProxyOpsPool, 34,210,176 bytes on 2.28.9). Without room for one it reads
// through a null pointer, and the job dies. So there has to be room for some at the first init, and
// for more at each later one; KernelTiming::kOn accepts the risk.
inline constexpr uint64_t kKernelTimingPoolBytes = 36 << 20;
inline constexpr uint64_t kKernelTimingSharedMemoryBytes = 8 * kKernelTimingPoolBytes;  // per rank

// NCCL's progress thread spins while a timed kernel is in flight: with one CPU for it and the
// training thread, the first collective of a communicator takes 2 s instead of 4 ms.
inline constexpr uint32_t kKernelTimingMilliCpusPerRank = 2000;

// x86 has a compare-exchange instruction, which does not fail without a reason. Arm and POWER load
// and store in two steps, between which an interrupt is enough.
#if defined(__x86_64__)
inline constexpr bool kWeakExchangeMayFail = false;
#else
inline constexpr bool kWeakExchangeMayFail = true;
#endif

// KernelCh is asked for only where NCCL gives it to every work item of a kernel, from the first one
// on. NCCL's host waits for `ring[n % 64].counter >= n` of each item n that has it,
// whatever the plugin returns:
//   1. The device counts every item; its entry of the ring is written if the item has KernelCh.
//   2. Some operations make the device count more than the host (DriftCauses). The host's n is then
//      an item that the device has passed and that had KernelCh, by the rule: nothing waits.
//   3. Without the rule, n may name an item without KernelCh: nothing writes it, and
//      ncclCommDestroy hangs.
// Hence no override by KernelTiming::kOn, or for a proxy whose pool loses operations or that
// outlives the memory that it polls. docs/kernel-timing.md lists what the rule does not exclude.
EventPolicy DecideEvents(const PolicyInput& input);

// Room in /dev/shm at the init of a communicator.
struct PoolRoom {
  uint64_t bytes_at_first_init = 0;
  uint64_t bytes = 0;          // free
  uint64_t communicators = 0;  // that live, this one included
  uint32_t local_ranks = 1;
};
// Whether NCCL can make the pools of kernel timing, on all local ranks at once. Pools of living
// communicators may still be to come.
bool HasRoomForPools(const PoolRoom& room);

// Takes kernel events back, for good. That is safe: by 1 and 2 a pending item's n names one that
// was passed earlier, and had KernelCh as well.
void WithdrawKernelEvents(EventPolicy& policy);

}  // namespace nccl_exporter::plugin
