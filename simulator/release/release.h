// SPDX-License-Identifier: Apache-2.0
// Differences between NCCL releases as a profiler plugin sees them: one named rule each, by release
// number, as read in NCCL's source. The source of a rule is beside it; files are NCCL's.
//
// Sources: the release tags of github.com/NVIDIA/nccl up to 2.30.7. 2.31: the copy of 2.31.2 in
// github.com/meta-pytorch/torchcomms, comms/ncclx/v2_31. 2.31.3, 2.32.3 and 2.32.6: release notes
// and single files of the 2.32 line (github.com/NVIDIA/nccl/releases/tag/v2.32.3-1, .../v2.32.6-1);
// what they do not contradict is as in 2.31.2. A later release is played as the latest one that was
// read.
#pragma once

#include <array>
#include <cstddef>

#include "simulator/release/nccl_settings.h"

namespace nccl_exporter::sim {

inline constexpr int kApiVersions = 7;

// The release that stands for a profiler API version unless another is asked for; index is the API
// version less one.
inline constexpr std::array<int, kApiVersions> kTypicalNcclVersions{22304, 22403, 22606, 22707,
                                                                    22809, 23007, 23103};

// The profiler API that release `nccl_version` (22809 for 2.28.9) speaks without a shim; 0 if it
// has none.
constexpr int NativeApiVersion(int nccl_version) {
  if (nccl_version >= 23100) return 7;  // 2.31 and 2.32: src/plugin/profiler/profiler_v7.cc
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
    default:
      return 0;
  }
}

class Release {
 public:
  explicit constexpr Release(int nccl_version, const NcclSettings& settings = {})
      : nccl_version_(nccl_version),
        api_version_(NativeApiVersion(nccl_version)),
        settings_(settings) {}

  constexpr int nccl_version() const { return nccl_version_; }
  constexpr int api_version() const { return api_version_; }

  // Events of the release: src/plugin/profiler.cc (2.26 and later), src/misc/profiler.cc (before).
  constexpr bool DescribesCommunicatorAtInit() const { return api_version_ >= 4; }
  constexpr bool HasApiEvents() const { return api_version_ >= 5; }
  constexpr bool HasKernelEvents() const { return api_version_ >= 3; }
  constexpr bool HasKernelTimes() const { return api_version_ >= 4; }
  constexpr bool HasDetailedProxyStates() const { return api_version_ <= 3; }
  // A step is a network transfer. 2.23 reports ranges of base steps, which are not played.
  constexpr bool HasTransferSteps() const { return api_version_ >= 2; }
  // If a poll finds several receive steps ended, NCCL stops only the first, and reports the state
  // RecvDone of the operation for each. 2.26.6 src/transport/net.cc recvProxyProgress :1482, :1498
  // (the step is chosen before the loop); 2.27.3 :1503.
  constexpr bool StopsOneReceiveOfAPoll() const { return api_version_ <= 3; }
  // Bytes of an operation are a sum that nothing sets to 0, in memory that operations use one after
  // the other. 2.26.6 src/proxy.cc ncclProxyOpToArgs, src/transport/net.cc :1199, :1396.
  constexpr bool SumsBytesForGood() const { return api_version_ <= 3; }
  // Steps are started also where the plugin refused their operation; their states never. 2.28.3
  // src/plugin/profiler.cc :516, 2.27.7 :361.
  constexpr bool StartsStepsOfRefused() const { return api_version_ >= 5; }
  // 2.31.2 src/plugin/profiler.cc ncclProfilerThreadFunc; before: the proxy's progress thread.
  constexpr bool HasProfilerThread() const { return api_version_ >= 7; }
  // NCCL_ENQUEUE_REARCH_ENABLE=1: no GroupApi, CollApi and P2pApi; tasks read the mask when they
  // are prepared, and have no parent. 2.31.2 src/enqueue/mgmt_task_enq.cc calls no profiler
  // function; src/enqueue/task_prep/task_posttuning.cc :109-111, :210-212.
  constexpr bool PreparesTasksLate() const {
    return nccl_version_ >= 23100 && settings_.has_rearchitected_enqueue;
  }
  constexpr bool AnnouncesCalls() const { return HasApiEvents() && !PreparesTasksLate(); }

  // The mask is loaded once a plan, not once a call. 2.25.1 src/misc/profiler.cc
  // ncclProfilerStartGroupEvent.
  constexpr bool ReadsMaskPerPlan() const { return api_version_ <= 2; }
  // Kernel events are all on or all off, for good; see HostCountsUnmaskedWork.
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

  // Broadcast is announced by its call only: it goes through the AllGatherV scheduler, and where a
  // group has one root it becomes an ordinary task again, with a mask of 0. 2.30.7 src/enqueue.cc
  // :368-390, :2703; 2.31.2 src/enqueue/enqueue.cc :414-447; not with NCCL_ENQUEUE_REARCH_ENABLE
  // (task_posttuning.cc :789). Still so in the 2.32 line (commit 00e7331; pull request 2369 is
  // open).
  constexpr bool BroadcastIsCallOnly() const { return JoinsBroadcasts() && !PreparesTasksLate(); }
  // Broadcasts of several roots in one group become one AllGatherV kernel: the device counts a work
  // item for each root on each channel, the host counts nothing. 2.30.7
  // src/scheduler/allgatherv_sched.cc adds no profiler operation.
  constexpr bool JoinsBroadcasts() const {
    return nccl_version_ >= 22900 && settings_.uses_allgatherv;
  }
  // Kernels of Broadcasts advance the device's counters and not the host's; see
  // HostCountsUnmaskedWork.
  constexpr bool ForgetsBroadcasts() const {
    return BroadcastIsCallOnly() && !HostCountsUnmaskedWork();
  }

  // Counters of kernel work (include/device.h workCounter, include/profiler.h workCounter): the
  // device counts every work item of a channel (src/device/common.h profiler()). The host counts
  // - up to 2.30 every item that it knows of, whatever its mask (2.30.7 src/proxy.cc :557-575,
  //   :760-761);
  // - from 2.31 on only items with the bit of kernel events (2.31.2 src/plugin/profiler.cc
  //   :1251-1255, :1317, :1339-1347; "Bcast: piggyback or no KernelCh" :1303).
  constexpr bool HostCountsUnmaskedWork() const { return nccl_version_ < 23100; }
  // A replay is counted only while the communicator's latest group was captured. 2.26.6
  // src/proxy.cc :549, 2.30.7 :572.
  constexpr bool ForgetsReplaysAfterEager() const {
    return nccl_version_ >= 22603 && nccl_version_ < 23100;
  }
  // A send to oneself, and parts of a message that are empty, have kernel events and are counted
  // like all others. Up to 2.30 the host knows nothing of them (2.30.7 src/enqueue.cc addP2pToPlan
  // :1034-1035, :1097-1110); 2.31.2 src/plugin/profiler.cc :1325-1350.
  constexpr bool TimesEveryPart() const { return nccl_version_ >= 23100; }
  // Operations of a channel are polled one after the other, so that one whose entry never comes
  // silences those behind it. From 2.31 on each is polled by itself (2.31.2 src/plugin/profiler.cc
  // profilerProgressOps).
  constexpr bool PollsInOrder() const { return nccl_version_ < 23100; }
  // ncclCommDestroy returns when the progress thread has no operation left (2.30.7 src/proxy.cc
  // :1009, :1050), so that a wait that never ends hangs it. From 2.31 on it discards them (2.31.2
  // src/plugin/profiler.cc :1150-1180).
  constexpr bool WaitsForEventsAtDestroy() const {
    return HasKernelEvents() && nccl_version_ < 23100;
  }
  // Entries of a channel's ring: 2.27.7 include/profiler.h MAX_PROFILER_EVENTS_PER_CHANNEL. 2.26
  // has one counter (2.26.6 src/device/common.h :315-335).
  constexpr size_t RingEntries() const { return HasKernelTimes() ? 64 : 1; }

  // Kernels over symmetric windows, from 2.27 on, have rings and counters of their own, or none:
  // they bring no drift.
  constexpr bool HasSymmetricKernels() const { return nccl_version_ >= 22700; }
  // Up to 2.30 nothing but their call is announced. From 2.31 on each task is; all kernel events of
  // a plan belong to its first task, the only one that announces channels (2.31.2
  // src/plugin/profiler.cc :598-604, profilerPostPlanWorkSym). A captured kernel reports nothing
  // (:1262 "clean kernel"), whatever its task announces.
  constexpr bool AnnouncesSymmetric() const { return nccl_version_ >= 23100; }

  // CollNet collectives announce 0 channels. 2.30.7 src/enqueue.cc scheduleCollTasksToPlan.
  constexpr bool HidesCollNetChannels() const {
    return nccl_version_ >= 22700 && nccl_version_ < 23100;
  }
  // Announced channels of a collective are an upper bound only.
  constexpr bool AnnouncesMaximumChannels() const { return api_version_ <= 3; }
  // A captured plan without proxy operations is announced once, at capture (before: never).
  constexpr bool AnnouncesAtCapture() const { return nccl_version_ >= 22700; }

 private:
  int nccl_version_;
  int api_version_;
  NcclSettings settings_;
};

}  // namespace nccl_exporter::sim
