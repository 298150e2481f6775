// SPDX-License-Identifier: Apache-2.0
#include "plugin/event_policy.h"

#include "plugin/profiler_abi.h"

namespace nccl_exporter {
namespace {

constexpr int kFirstUnsound = 23100;  // 2.31.0: kernel events cost 4 to 13 % and their time stamps drift
constexpr int kLastUnsound = 23102;   // 2.31.2

// Whether kernel events may be asked for, and why (not).
struct KernelVerdict {
  bool granted;
  TimingReason reason;
};

KernelVerdict JudgeKernelTiming(const PolicyInput& input) {
  if (input.api_version < 3) return {false, TimingReason::kApiTooOld};
  if (input.kernel_timing == KernelTiming::kOff) return {false, TimingReason::kConfigured};
  if (input.kernel_timing == KernelTiming::kOn) return {true, TimingReason::kConfigured};
  if (input.api_version == 3) return {false, TimingReason::kApiTooOld};
  if (input.nccl_version >= kFirstUnsound && input.nccl_version <= kLastUnsound) {
    return {false, TimingReason::kReleaseUnsound};
  }
  // v4 to v6 belong to releases that are all sound; v7 began with one that is not.
  if (input.api_version >= 7 && input.nccl_version == 0) return {false, TimingReason::kReleaseUnknown};
  if (input.shared_memory_free_bytes < kKernelTimingSharedMemoryBytes * input.local_ranks) {
    return {false, TimingReason::kSharedMemoryLow};
  }
  return {true, TimingReason::kDefault};
}

}  // namespace

EventPolicy DecideEvents(const PolicyInput& input) {
  const KernelVerdict kernel = JudgeKernelTiming(input);
  EventPolicy policy;
  policy.reason = kernel.reason;
  policy.mask = abi::kColl | abi::kP2p;  // NCCL implies the events that enclose these, API calls included
  if (input.api_version >= 6) policy.mask |= abi::kCeColl;
  if (kernel.granted) {
    policy.mask |= abi::kKernelCh;
    policy.source = input.api_version >= 4 ? TimingSource::kKernel : TimingSource::kKernelCpu;
  } else {
    policy.mask |= abi::kProxyOp;
    policy.source = TimingSource::kProxy;
  }
  return policy;
}

}  // namespace nccl_exporter
