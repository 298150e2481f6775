// SPDX-License-Identifier: Apache-2.0
// Facts about captured graphs: which threads capture, and whether host functions of CUDA streams
// may announce launches. Any thread.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <cstring>

#include "plugin/segment/atomics.h"

namespace nccl_exporter::plugin {

// Numbers the threads that capture graphs: they show whether a captured operation is announced by
// its capture or by a replay. A number outlives its thread, whose pthread_t or kernel's number may
// be used again. The first captured call of a thread may allocate where the process has more than
// 31 keys.
//
// A plan without proxy operations is announced at its capture, by the thread that captures, and
// never again (2.30.7 src/enqueue.cc, ncclLaunchKernelAfter_NoCuda). One with proxy operations is
// announced at each replay, by a host function, on a thread of the CUDA driver. Only a replay is
// work of the GPU. The stop of the GroupApi event does not part the two: where groups are nested, a
// group within may stop the event, and the outer one announces later (2.28.3 to 2.31.2:
// ncclEnqueueCheck counts its own groups in profilerGroupDepth, ncclGroupStart does not).
// A non-blocking communicator announces on a thread of NCCL's, also at the capture: there, one
// operation too many is counted for each captured call without proxy operations.
class CapturingThreads {
 public:
  // Once, before the first call. Without a key no thread has a number.
  void Open() { has_key_ = pthread_key_create(&key_, nullptr) == 0; }

  // The calling thread's number, which it is given if it has none; 0: there is none to give.
  uint64_t Number() {
    if (!has_key_) return 0;
    uint64_t number = Known();
    if (number != 0) return number;
    number = numbers_.fetch_add(1, std::memory_order_relaxed) + 1;
    return pthread_setspecific(key_, reinterpret_cast<void*>(number)) == 0 ? number : 0;
  }
  bool IsCurrent(uint64_t number) const { return number != 0 && has_key_ && Known() == number; }

 private:
  uint64_t Known() const { return reinterpret_cast<uint64_t>(pthread_getspecific(key_)); }

  bool has_key_;
  pthread_key_t key_;
  std::atomic<uint64_t> numbers_;
};

// Process::host_may_announce_: NCCL may announce launches by host functions of CUDA streams.
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
//      calls are not announced, Communicator::MayBeAlone() says no.
//   2. A host function comes after 1 by the driver's own locks, so its thread sees the flag.
//   3. A thread that has not seen the flag announces its own calls. A host function that announces
//      for it was handed over later, so it runs after those announcements.
//
// CUDA_LAUNCH_BLOCKING as NCCL reads it: whether the flag is set from the start.
inline bool IsLaunchBlocking(const char* text) {
  return text != nullptr && text[0] != '\0' && std::strcmp(text, "0") != 0;
}

}  // namespace nccl_exporter::plugin
