// SPDX-License-Identifier: Apache-2.0
#include "plugin/nccl/event_policy.h"

#include "plugin/nccl/profiler_abi.h"

namespace nccl_exporter::plugin {
namespace {

// Whether kernel events may be asked for, and why (not).
struct KernelVerdict {
  bool granted;
  TimingReason reason;
};

// Dangers that no setting accepts: kernel events that hang or crash the job.
TimingReason FindDanger(const PolicyInput& input, const NcclRelease& release) {
  const bool pool_is_sound =
      input.api_version > kApiOfFirstSoundPool ||
      (input.api_version == kApiOfFirstSoundPool && input.nccl_version >= kFirstSoundPool);
  if (input.weak_exchange_may_fail && !pool_is_sound) return TimingReason::kReleaseUnsound;
  if (input.shares_resources) return TimingReason::kResourcesShared;
  if (release.broadcasts_lack_events && !input.allgatherv_is_off)
    return TimingReason::kAllgathervEnabled;
  return TimingReason::kDefault;
}

KernelVerdict JudgeKernelTiming(const PolicyInput& input, const NcclRelease& release) {
  const TimingReason danger = FindDanger(input, release);
  if (release.kernel_events == KernelEvents::kNone) return {false, TimingReason::kApiTooOld};
  if (input.kernel_timing == KernelTiming::kOff) return {false, TimingReason::kConfigured};
  if (input.kernel_timing == KernelTiming::kOn) {
    if (danger != TimingReason::kDefault) return {false, danger};
    return {true, TimingReason::kConfigured};
  }
  if (release.kernel_events == KernelEvents::kWithoutTime) return {false, TimingReason::kApiTooOld};
  if (release.kernel_events == KernelEvents::kCostly ||
      release.kernel_events == KernelEvents::kBounded) {
    return {false, TimingReason::kReleaseUnsound};
  }
  // API v7 began with releases whose kernel events cost.
  if (!release.is_known && input.nccl_version == 0) return {false, TimingReason::kReleaseUnknown};
  if (danger != TimingReason::kDefault) return {false, danger};
  if (release.misplaces_nvls_flags && input.may_register_nvls_buffers)
    return {false, TimingReason::kRegistrationEnabled};
  if (input.shared_memory_free_bytes < kKernelTimingSharedMemoryBytes * input.local_ranks) {
    return {false, TimingReason::kSharedMemoryLow};
  }
  if (input.milli_cpus_per_rank < kKernelTimingMilliCpusPerRank)
    return {false, TimingReason::kCpusLow};
  return {true, TimingReason::kDefault};
}

void FollowByProxies(EventPolicy& policy) {
  policy.mask = (policy.mask & ~static_cast<int>(abi::kKernelCh)) | abi::kProxyOp;
  policy.source = TimingSource::kProxy;
}

}  // namespace

EventPolicy DecideEvents(const PolicyInput& input) {
  const NcclRelease release = FactsOf(input.api_version, input.nccl_version);
  const KernelVerdict kernel = JudgeKernelTiming(input, release);
  EventPolicy policy{.api_version = input.api_version, .nccl_version = input.nccl_version};
  policy.is_mask_watched = release.ras_sets_mask;
  policy.reason = kernel.reason;
  policy.may_time_network = release.has_network_steps;
  // NCCL implies the events that enclose these, API calls included.
  policy.mask = abi::kColl | abi::kP2p;
  if (input.api_version >= 6) policy.mask |= abi::kCeColl;
  if (kernel.granted) {
    policy.mask |= abi::kKernelCh;
    policy.causes = release.causes;
    policy.source = release.kernel_events == KernelEvents::kWithoutTime ? TimingSource::kKernelCpu
                                                                        : TimingSource::kKernel;
    policy.times_are_on_probation = !release.is_known;
  } else {
    FollowByProxies(policy);
  }
  policy.shared_bits =
      input.is_chained ? ~(policy.mask | static_cast<int>(abi::kKernelCh)) : abi::kProxyStep;
  return policy;
}

bool HasRoomForPools(const PoolRoom& room) {
  const uint64_t bytes = kKernelTimingPoolBytes * room.local_ranks;
  return room.bytes >= 2 * bytes && room.bytes_at_first_init >= bytes * room.communicators;
}

void WithdrawKernelEvents(EventPolicy& policy) {
  FollowByProxies(policy);
  policy.reason = TimingReason::kSharedMemoryLow;
  policy.causes = {};
  policy.times_are_on_probation = false;
}

}  // namespace nccl_exporter::plugin
