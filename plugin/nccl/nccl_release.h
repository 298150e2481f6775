// SPDX-License-Identifier: Apache-2.0
// Table of what is known of each NCCL release: which kernel events it has, which of its work they
// leave out, and what makes its counters drift. Event policy and drift rules read it.
// proto/README.md has the drift rules in prose.
//
// Facts were read in NCCL's source; each row names the files. Line numbers are those of the last
// release of the row.
#pragma once

#include <array>
#include <cstdint>

namespace nccl_exporter::plugin {

// Causes by which the host's counters of kernel work leave the device's (drift_watch.h).
struct DriftCauses {
  // A message to oneself, or one with empty parts: counted by the device only.
  bool hides_parts = false;
  // A captured graph, replayed after an eager call: counted by the device only.
  bool forgets_replays = false;
  // Collectives whose events another program has switched off: counted by the device only.
  bool forgets_unannounced = false;

  bool operator==(const DriftCauses&) const = default;
};

enum class KernelEvents : uint8_t {
  kNone,         // the profiler API has none
  kWithoutTime,  // the plugin dates them at their delivery
  kCostly,       // with GPU times; the kernels take 4 to 13 % longer
  kBounded,      // with GPU times; a large group of Sends and Receives ends in an error of NCCL
  kTimed,        // with GPU times
};

struct NcclRelease {
  int api_version = 0;    // of the profiler API, as this plugin is called
  int first_version = 0;  // as ncclGetVersion reports it
  int last_version = 0;
  KernelEvents kernel_events = KernelEvents::kNone;
  // Broadcasts go through the AllGatherV scheduler, which drops KernelCh, unless
  // NCCL_ALLGATHERV_ENABLE=0. The device then skips their entries in its ring of time stamps. Host
  // and device counters that differ make NCCL wait for such an entry: ncclCommDestroy hangs (2.29
  // and 2.30), or NCCL polls memory that it has freed (2.31.2).
  bool broadcasts_lack_events = false;
  // In a launch with several collectives over buffers that are registered for NVLS, the device
  // looks for the flags of all but the first at wrong places: it may skip the entry that the host
  // waits for.
  bool misplaces_nvls_flags = false;
  // NCCL's RAS client can change the mask while the job runs (CONTROL PROFILER_MASK).
  bool ras_sets_mask = false;
  // The steps of a proxy operation are announced one by one, each a transfer. 2.23 announces
  // ranges.
  bool has_network_steps = false;
  DriftCauses causes;
  // False: newer than the table, or not to be distinguished; the facts are those of its neighbour.
  bool is_known = false;
};

// Sources, at https://github.com/NVIDIA/nccl:
//   hides_parts: enqueue.cc addP2pToPlan queues no profiler operation for a part without steps,
//     proxy.cc ncclProxySaveOp none for a message to oneself; device/common.h profiler() counts
//     every work item.
//   forgets_replays: proxy.cc SaveProxyProfiler increments at a replay only while
//     comm->planner.persistent is set.
//   broadcasts_lack_events: enqueue.cc collTaskAppend and ncclPrepareTasks (a single root becomes a
//     task without eActivationMask), scheduler/allgatherv_sched.cc (several roots: no profiler
//     operation at all). On 2.31 and later the device counts them, and ncclProfilerPostPlanWork
//     does not (pull request 2369 is open).
//   misplaces_nvls_flags: device/common.h profilerEnabled() steps by the size of ncclDevWorkColl,
//     and such work is a ncclDevWorkCollReg (enqueue.cc ncclTasksRegAndEnqueue).
//   ras_sets_mask: 2.31.2 ras/client_support.cc, and plugin/profiler.cc, which applies it again
//     after each init.
//   forgets_unannounced: 2.31.2 plugin/profiler.cc ncclProfilerPostPlanWork does not count them.
//     ncclProfilerStartTaskEvents counts coll.seqNumber on for every collective that is not
//     captured, announced or not.
//   kWithoutTime, kBounded: 2.26 and 2.27 transport/profiler.cc makes shared connections, so that
//     proxy.cc ProxyAppend puts all Sends (Receives) of a batch on a channel into one list of
//     NCCL_PROXY_MAX_SUBS (64), and beyond fails with "Proxy append out of bounds" (issue 2039, an
//     AlltoAll). From 2.28 on they are not shared.
//   has_network_steps: 2.24.3 misc/profiler.cc ncclProfilerStartSendProxyStepEvent; 2.23.4 takes a
//     range of steps.
//   kCostly: issue 2355, closed by 2.32.3. 2.31.3 on: messages to oneself and empty parts are
//     counted on both sides (plugin/profiler.cc ncclProfilerPostPlanWork, by channel mask).
inline constexpr DriftCauses kUntil230{.hides_parts = true, .forgets_replays = true};
inline constexpr DriftCauses kFrom231{.forgets_unannounced = true};
inline constexpr std::array<NcclRelease, 9> kNcclReleases{
    {{1, 22300, 22399, KernelEvents::kNone, false, false, false, false, {}},
     {2, 22400, 22599, KernelEvents::kNone, false, false, false, true, {}},
     {3, 22600, 22699, KernelEvents::kWithoutTime, false, false, false, true, kUntil230},
     {4, 22700, 22799, KernelEvents::kBounded, false, true, false, true, kUntil230},
     {5, 22800, 22899, KernelEvents::kTimed, false, true, false, true, kUntil230},
     {6, 22900, 23099, KernelEvents::kTimed, true, true, false, true, kUntil230},
     {7, 23100, 23102, KernelEvents::kCostly, true, true, true, true, kFrom231},
     {7, 23103, 23199, KernelEvents::kTimed, true, true, true, true, kFrom231},
     {7, 23200, 23206, KernelEvents::kTimed, true, false, true, true, kFrom231}}};

// Before 2.29.3 (25368a7) proxy.cc ncclProxyGetPostedOps returned slots to the pool by a weak
// compare-exchange and looked at the value only: one that fails without a reason loses them. With
// all 2048 lost, the thread that launches waits forever (issue 2353). Inside a node, kernel events
// alone take such slots. Before 2.28.9 (dbc86fd) another order of that loop did the same.
inline constexpr int kFirstSoundPool = 22903;
inline constexpr int kApiOfFirstSoundPool = 6;

// `nccl_version` 0: not known. Up to API v6, the API version alone names the row.
constexpr NcclRelease FactsOf(int api_version, int nccl_version) {
  NcclRelease facts;
  int rows_of_api = 0;
  for (const NcclRelease& release : kNcclReleases) {
    if (release.api_version != api_version) continue;
    ++rows_of_api;
    facts = release;
    facts.is_known = release.first_version <= nccl_version && nccl_version <= release.last_version;
    if (facts.is_known) return facts;
  }
  facts.is_known = nccl_version == 0 && rows_of_api == 1;
  // A version that contradicts its API is no release of the table's: nothing says what its
  // Broadcasts do.
  facts.broadcasts_lack_events |= !facts.is_known && facts.kernel_events != KernelEvents::kNone;
  return facts;
}

}  // namespace nccl_exporter::plugin
