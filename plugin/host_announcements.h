// SPDX-License-Identifier: Apache-2.0
// Flag of a process in which NCCL may announce launches by host functions of CUDA streams. Any
// thread.
//
// A host function runs on a thread of the CUDA driver. It may announce a launch while the thread
// that calls announces another one of the same communicator. NCCL uses one (2.27.7 to 2.31.2
// enqueue.cc, isHostCbEnq):
//   - for a plan that is captured,
//   - for a later plan, while host functions of captured plans are pending; communicators may share
//     their stream,
//   - for every plan with CUDA_LAUNCH_BLOCKING.
// The thread that calls announces everything else. NCCL allows one such thread at a time on a
// communicator. For a non-blocking communicator it is a thread of NCCL's, and NCCL refuses calls
// until that thread is done (ncclCommEnsureReady).
//
// Why two threads that announce on one communicator at a time both see the flag:
//   1. The start event of a captured call comes before its plan is made. It sets the flag. Where
//      calls are not announced, OperationStarter::OpenLaunch() does without the flag.
//   2. A host function comes after 1 by the driver's own locks, so its thread sees the flag.
//   3. A thread that has not seen the flag announces its own calls. A host function that announces
//      for it was handed over later, so it runs after those announcements.
#pragma once

#include <atomic>

#include "plugin/segment/atomics.h"

namespace nccl_exporter::plugin {

// All zeros is its first state, as in a forked child.
class HostAnnouncements {
 public:
  // Once, before the first call. `launch_blocking`: CUDA_LAUNCH_BLOCKING as NCCL reads it, nullptr
  // if it is not set.
  void Open(const char* launch_blocking) {
    const bool is_off = launch_blocking == nullptr || launch_blocking[0] == '\0' ||
                        (launch_blocking[0] == '0' && launch_blocking[1] == '\0');
    if (!is_off) StoreRelaxed(are_possible_, true);
  }
  // A call is being captured, or another program has changed the event mask: calls may have been
  // captured that were not announced.
  void SetPossible() { StoreRelaxed(are_possible_, true); }
  bool ArePossible() const { return LoadRelaxed(are_possible_); }

 private:
  std::atomic<bool> are_possible_;
};

}  // namespace nccl_exporter::plugin
