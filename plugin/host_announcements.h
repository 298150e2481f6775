// SPDX-License-Identifier: Apache-2.0
// Whether NCCL may announce launches by host functions of CUDA streams: then on a thread of the CUDA driver, at the
// same time as the thread that calls announces others of the same communicator. Any thread.
//
// The rule of 2.27.7 to 2.31.2 (enqueue.cc, isHostCbEnq): a plan that is captured, a later one while host functions of
// captured plans are pending on the communicator's resources, which other communicators may share, or every plan with
// CUDA_LAUNCH_BLOCKING. All else is announced by the thread that calls, and NCCL allows one at a time on a
// communicator.
//
//   1. The start event of a captured call comes before its plan is made. It sets the flag.
//   2. Host functions come after 1, by the driver's own locks, so their thread sees the flag.
//   3. A thread that has not seen the flag announces its own calls only, and what a host function announces for it was
//      handed over later. So two threads that announce on one communicator at a time both see it.
#pragma once

#include <atomic>

namespace nccl_exporter {

// All zeros is its first state, as in a forked child.
class HostAnnouncements {
 public:
  // Once, before the first call. `launch_blocking`: CUDA_LAUNCH_BLOCKING as NCCL reads it, nullptr if it is not set.
  void Open(const char* launch_blocking) {
    const bool is_off = launch_blocking == nullptr || launch_blocking[0] == '\0' ||
                        (launch_blocking[0] == '0' && launch_blocking[1] == '\0');
    if (!is_off) are_possible_.store(true, std::memory_order_relaxed);
  }
  // A call is being captured.
  void NoteCapture() { are_possible_.store(true, std::memory_order_relaxed); }
  bool ArePossible() const { return are_possible_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> are_possible_;
};

}  // namespace nccl_exporter
