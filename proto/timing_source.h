// SPDX-License-Identifier: Apache-2.0
// Sources of durations, and reasons of timing, as the segment has them. Append only.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "proto/code_table.h"

namespace nccl_exporter {

// Where completions and durations come from, per communicator (label `timing_source`). Append
// only, as all that follow.
enum class TimingSource : uint8_t { kNone, kKernel, kKernelCpu, kProxy, kCount };
inline constexpr CodeTable<TimingSource> kTimingSources{{
    {TimingSource::kNone, "none", "counts and bytes only"},
    {TimingSource::kKernel, "kernel", "GPU clock, by NCCL's KernelCh events (2.27 and later)"},
    {TimingSource::kKernelCpu, "kernel_cpu",
     "CPU clock at delivery of KernelCh events, which carry no time in 2.26"},
    {TimingSource::kProxy, "proxy",
     "completions of network operations by NCCL's proxy events, which give no durations"},
}};
static_assert(IsInOrder(kTimingSources));
constexpr std::string_view NameOf(TimingSource source) {
  return RowIn(kTimingSources, source).name;
}
constexpr bool HasDurations(TimingSource source) {
  return source == TimingSource::kKernel || source == TimingSource::kKernelCpu;
}

// Why that source was chosen (label `timing_reason`); chosen once per process and NCCL library by
// the event policy.
enum class TimingReason : uint8_t {
  kDefault,
  kConfigured,
  kApiTooOld,
  kReleaseUnsound,
  kReleaseUnknown,
  kSharedMemoryLow,
  kOverflow,
  kDrift,
  kAllgathervEnabled,
  kCpusLow,
  kSamplingFrozen,
  kMaskOverride,
  kRegistrationEnabled,
  kResourcesShared,
  kCount
};
inline constexpr CodeTable<TimingReason> kTimingReasons{{
    {TimingReason::kDefault, "default", "kernel timing is sound on this release"},
    {TimingReason::kConfigured, "configured", "NCCL_EXPORTER_KERNEL_TIMING is on or off"},
    {TimingReason::kApiTooOld, "api_too_old",
     "profiler API v1 and v2 have no kernel events; those of 2.26 have no time"},
    {TimingReason::kReleaseUnsound, "release_unsound",
     "2.31.0 to 2.31.2: 4 to 13 % cost, drifting time stamps; 2.27: no large AlltoAll; on Arm "
     "before 2.29.3: NCCL can deadlock"},
    {TimingReason::kReleaseUnknown, "release_unknown", "the NCCL version is not known"},
    {TimingReason::kSharedMemoryLow, "shared_memory_low",
     "/dev/shm cannot hold what NCCL needs for kernel timing"},
    {TimingReason::kOverflow, "overflow", "communicator in the overflow slot"},
    {TimingReason::kDrift, "drift", "the communicator's time stamps were found to drift"},
    {TimingReason::kAllgathervEnabled, "allgatherv_enabled",
     "2.29 and later, without NCCL_ALLGATHERV_ENABLE=0: kernel timing could hang the job"},
    {TimingReason::kCpusLow, "cpus_low",
     "fewer than two CPUs per local rank, for NCCL's progress thread and the training thread"},
    {TimingReason::kSamplingFrozen, "sampling_frozen",
     "windows of kernel timing (plugins up to 1.7) ended outside of a window"},
    {TimingReason::kMaskOverride, "mask_override",
     "another program changed NCCL's event mask, as NCCL's RAS client does"},
    {TimingReason::kRegistrationEnabled, "registration_enabled",
     "2.27 to 2.31, on GPUs with NVLink SHARP: with buffers that the job registers, kernel timing "
     "could hang the job"},
    {TimingReason::kResourcesShared, "resources_shared",
     "communicators share resources by NCCL_COMM_SPLIT_SHARE_RESOURCES or "
     "NCCL_COMM_SHRINK_SHARE_RESOURCES: kernel timing could crash the job"},
}};
static_assert(IsInOrder(kTimingReasons));
constexpr std::string_view NameOf(TimingReason reason) {
  return RowIn(kTimingReasons, reason).name;
}

// Cause that ended the kernel timing of a communicator, for the daemon's API.
enum class DriftCause : uint8_t {
  kNone,
  kMessageToSelf,
  kEmptyParts,
  kReplayAfterEagerCall,
  kContradiction,
  kMaskOverride,
  kEventsOff,
  kCount
};
inline constexpr CodeTable<DriftCause> kDriftCauses{{
    {DriftCause::kNone, "none", "kernel timing has not ended"},
    {DriftCause::kMessageToSelf, "message_to_self",
     "a send to or receive from oneself, as in every AlltoAll"},
    {DriftCause::kEmptyParts, "empty_parts",
     "a message that is cut into more parts than have data"},
    {DriftCause::kReplayAfterEagerCall, "replay_after_eager_call",
     "a captured graph that was replayed after an eager call"},
    {DriftCause::kContradiction, "contradiction",
     "GPU times that contradict each other or the CPU's clock"},
    {DriftCause::kMaskOverride, "mask_override", "another program changed NCCL's event mask"},
    {DriftCause::kEventsOff, "events_off",
     "collectives were not announced, because another program had switched their events off"},
}};
static_assert(IsInOrder(kDriftCauses));

// All of the time, in millionths.
inline constexpr uint32_t kWholeDutyPpm = 1'000'000;

}  // namespace nccl_exporter
