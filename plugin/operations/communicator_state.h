// SPDX-License-Identifier: Apache-2.0
// State that the parts of one communicator share: the slot it is recorded in, its timing, and its
// rings. Any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "plugin/nccl/nccl_release.h"
#include "plugin/operations/operation.h"
#include "plugin/segment/atomics.h"
#include "plugin/segment/recorder.h"
#include "plugin/timing/work_items.h"
#include "proto/loss.h"
#include "proto/timing_source.h"

namespace nccl_exporter::plugin {

// A communicator, as it is when it is opened.
struct CommunicatorSetup {
  TimingSource source = TimingSource::kNone;  // kNone: operations are counted and not followed
  int rank = -1;
  uint32_t ranks = 0;  // 0: not known
  layout::CommunicatorSlot* slot = nullptr;
  layout::SegmentHeader* header = nullptr;
  DriftCauses causes = {};  // of the release that calls
  // The release is not known: kernel times are held until kProbationLaunches launches agree with
  // the CPU's interval.
  bool times_are_on_probation = false;
  bool has_identity = true;  // false: id and rank come with the first operation (API v1 to v3)
};

class CommunicatorState {
 public:
  void Open(const CommunicatorSetup& setup) {
    StoreRelaxed(source_, setup.source);
    Zero(is_drifting_, uncompared_items_);
    work_items_.Open();
    recorder_.Open(setup.slot, setup.header, setup.ranks);
  }

  Recorder& recorder() { return recorder_; }
  WorkItems& work_items() { return work_items_; }

  TimingSource source() const { return LoadRelaxed(source_); }
  bool ReadsKernels() const {
    return source() == TimingSource::kKernel || source() == TimingSource::kKernelCpu;
  }
  bool ReadsGpuClock() const { return source() == TimingSource::kKernel; }
  bool IsDrifting() const { return LoadRelaxed(is_drifting_); }
  // No further operation is followed once the communicator drifts; those in flight still are.
  bool FollowsOperations() const { return source() != TimingSource::kNone && !IsDrifting(); }

  // From here on the counters drift: neither the launch nor anything after it is timed. Launches
  // before it are. The first cause is shown.
  [[gnu::cold]] void BeginDrift(uint64_t launch_ticket, DriftCause cause) {
    RejectLaunch(launch_ticket, Loss::kDrift);
    if (!is_drifting_.exchange(true, std::memory_order_relaxed)) recorder_.ShowDrift(cause);
  }
  // Untimes all of an open launch; the first loss decides.
  void RejectLaunch(uint64_t launch_ticket, Loss loss) {
    Launch& launch = LaunchAt(launch_ticket);
    if (launch_ticket == 0 || (LoadAcquire(launch.ticket) & Handle::kTicketMask) != launch_ticket)
      return;
    if (LoadRelaxed(launch.rejection) == 0)
      StoreRelaxed(launch.rejection, 1 + static_cast<uint64_t>(loss));
  }

  Operation& At(uint64_t ticket) {
    Operation* operation = &operations_[ticket % kOperationEntries];
    // One address in one register: the compiler keeps one for each field else, and saves registers
    // for them in each event of a channel (a tenth of its time).
    asm("" : "+r"(operation));
    return *operation;
  }
  Launch& LaunchAt(uint64_t ticket) { return launches_[ticket % kLaunchEntries]; }

 protected:
  // The operation that last reported on a channel, by its order: NCCL completes the operations of a
  // channel in order, receives apart from everything else.
  AtomicU64& OwnerOf(const Operation& operation, uint32_t channel) {
    return channel_owners_[LoadRelaxed(operation.owner_lane) + channel];
  }
  [[gnu::cold]] void CountStray(uint64_t state, uint64_t abbreviated) {
    const bool is_known = (TicketOf(state) & Handle::kTicketMask) == abbreviated;
    recorder_.CountLoss(is_known ? Loss::kAfterCompletion : Loss::kStaleHandle);
  }

  std::atomic<TimingSource> source_{TimingSource::kNone};
  std::atomic<bool> is_drifting_{false};  // untimed for good, from some operation on
  Recorder recorder_;
  WorkItems work_items_;
  // Work items whose times were not compared with those of the launches around them.
  alignas(64) AtomicU64 uncompared_items_{0};
  // Ticket: no operation that is followed has a lower one. By threads that complete operations.
  AtomicU64 oldest_{1};
  alignas(64) std::array<AtomicU64, 2 * Handle::kMaxChannels> channel_owners_{};
  std::array<Operation, kOperationEntries> operations_;
  std::array<Launch, kLaunchEntries> launches_;
};

}  // namespace nccl_exporter::plugin
