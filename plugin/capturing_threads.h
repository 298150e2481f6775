// SPDX-License-Identifier: Apache-2.0
// Numbers of the threads that capture graphs: they show whether a captured operation is announced
// by its capture or by a replay. Any thread.
//
// A plan without proxy operations is announced at its capture, by the thread that captures, and
// never again (2.30.7 src/enqueue.cc, ncclLaunchKernelAfter_NoCuda). One with proxy operations is
// announced at each replay, by a host function, on a thread of the CUDA driver. Only a replay is
// work of the GPU. The stop of the GroupApi event does not part the two: where groups are nested, a
// group within may stop the event, and the outer one announces later (2.28.3 to 2.31.2:
// ncclEnqueueCheck counts its own groups in profilerGroupDepth, ncclGroupStart does not).
// A non-blocking communicator announces on a thread of NCCL's, also at the capture: there, one
// operation too many is counted for each captured call without proxy operations.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "plugin/oldest_glibc.h"

namespace nccl_exporter::plugin {

// Numbers the threads that capture. A number outlives its thread, whose pthread_t or kernel's
// number may be used again. The first captured call of a thread may allocate where the process has
// more than 31 keys, as glibc does it.
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

}  // namespace nccl_exporter::plugin
