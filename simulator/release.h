// SPDX-License-Identifier: Apache-2.0
// What differs between NCCL releases as a profiler plugin sees them: one named rule each, by release number.
#pragma once

#include <array>

namespace nccl_exporter::sim {

inline constexpr int kApiVersions = 7;

// The release that stands for a profiler API version unless another is asked for; index is the API version less one.
inline constexpr std::array<int, kApiVersions> kTypicalNcclVersions{22304, 22403, 22606, 22707, 22809, 23007, 23103};

// The profiler API that release `nccl_version` (22809 for 2.28.9) speaks without a shim; 0 if it has none.
constexpr int NativeApiVersion(int nccl_version) {
  switch (nccl_version / 100) {
    case 223:
      return 1;
    case 224:
    case 225:
      return 2;
    case 226:
      return 3;
    case 227:
      return 4;
    case 228:
      return 5;
    case 229:
    case 230:
      return 6;
    case 231:
      return 7;
    default:
      return 0;
  }
}

class Release {
 public:
  explicit constexpr Release(int nccl_version)
      : nccl_version_(nccl_version), api_version_(NativeApiVersion(nccl_version)) {}

  constexpr int nccl_version() const { return nccl_version_; }
  constexpr int api_version() const { return api_version_; }

  // Who tells what.
  constexpr bool DescribesCommunicatorAtInit() const { return api_version_ >= 4; }
  constexpr bool HasApiEvents() const { return api_version_ >= 5; }
  constexpr bool HasKernelEvents() const { return api_version_ >= 3; }
  constexpr bool HasKernelTimes() const { return api_version_ >= 4; }
  constexpr bool HasDetailedProxyStates() const { return api_version_ <= 3; }
  constexpr bool HasProfilerThread() const { return api_version_ >= 7; }

  // The mask is loaded once a plan, not once a call.
  constexpr bool ReadsMaskPerPlan() const { return api_version_ <= 2; }
  // Kernel events are all on or all off, for good.
  constexpr bool BearsNoMaskChange() const { return nccl_version_ >= 23100; }
  // Coll and P2p are announced only under a Group that the plugin gave a handle.
  constexpr bool NeedsGroupHandle() const { return api_version_ <= 4; }
  // Coll and P2p are stopped even where the plugin gave no handle.
  constexpr bool StopsTasksUnchecked() const { return api_version_ <= 2; }
  // finalize is called for a communicator whose context is NULL, too.
  constexpr bool FinalizesNullContext() const { return api_version_ <= 4; }
  // Sequence numbers advance only under a Group that the plugin gave a handle.
  constexpr bool CountsOnlyAnnounced() const { return api_version_ <= 2; }
  // The slots of kernel channel handles are cleared after their stop.
  constexpr bool ClearsKernelSlots() const { return api_version_ >= 7; }

  // Broadcast is announced by its call only (it goes through the AllGatherV scheduler).
  constexpr bool BroadcastIsCallOnly() const { return nccl_version_ >= 22900; }
  // Kernels of Broadcasts advance the device's counters and not the host's.
  constexpr bool ForgetsBroadcasts() const { return nccl_version_ >= 23100 && nccl_version_ < 23103; }
  // CollNet collectives announce 0 channels.
  constexpr bool HidesCollNetChannels() const { return nccl_version_ >= 22700 && nccl_version_ < 23100; }
  // Announced channels of a collective are an upper bound only.
  constexpr bool AnnouncesMaximumChannels() const { return api_version_ <= 3; }
  // A send to oneself, and parts of a message that are empty, have kernel events like all others.
  constexpr bool TimesEveryPart() const { return nccl_version_ >= 23100; }
  // A captured plan without proxy operations is announced once, at capture (before: never).
  constexpr bool AnnouncesAtCapture() const { return nccl_version_ >= 22700; }

 private:
  int nccl_version_;
  int api_version_;
};

}  // namespace nccl_exporter::sim
