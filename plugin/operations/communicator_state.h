// SPDX-License-Identifier: Apache-2.0
// State that the parts of one communicator share: the slot it is recorded in, its timing, and its
// rings. Any thread.
//
// Who writes what: Open the timing source; any thread `is_drifting`, once; threads that complete
// operations `oldest`; the thread that reports channels their owners. operation.h says who writes
// the rings.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "plugin/operations/operation.h"
#include "plugin/segment/atomics.h"
#include "plugin/segment/recorder.h"
#include "plugin/timing/work_items.h"
#include "proto/loss.h"
#include "proto/timing_source.h"

namespace nccl_exporter::plugin {

class CommunicatorState {
 public:
  // Under the process's lock, while no event can carry the new context yet.
  void Open(TimingSource source, layout::CommunicatorSlot* slot, layout::SegmentHeader* header,
            uint32_t ranks) {
    source_.store(source, std::memory_order_relaxed);
    is_drifting_.store(false, std::memory_order_relaxed);
    StoreRelaxed(uncompared_items_, 0);
    work_items_.Open();
    recorder_.Open(slot, header, ranks);
  }

  Recorder& recorder() { return recorder_; }
  const Recorder& recorder() const { return recorder_; }
  WorkItems& work_items() { return work_items_; }
  // Work items whose times were not compared with those of the launches around them.
  AtomicU64& uncompared_items() { return uncompared_items_; }

  TimingSource source() const { return source_.load(std::memory_order_relaxed); }
  bool ReadsKernels() const {
    return source() == TimingSource::kKernel || source() == TimingSource::kKernelCpu;
  }
  bool ReadsGpuClock() const { return source() == TimingSource::kKernel; }
  bool IsDrifting() const { return is_drifting_.load(std::memory_order_relaxed); }
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

  Operation& At(uint64_t ticket) { return operations_[ticket % kOperationEntries]; }
  Launch& LaunchAt(uint64_t ticket) { return launches_[ticket % kLaunchEntries]; }
  std::array<Operation, kOperationEntries>& operations() { return operations_; }
  std::array<Launch, kLaunchEntries>& launches() { return launches_; }
  // Ticket: no operation that is followed has a lower one.
  AtomicU64& oldest() { return oldest_; }
  const AtomicU64& oldest() const { return oldest_; }
  // The operation that last reported on a channel, by its order: NCCL completes the operations of a
  // channel in order, receives apart from everything else.
  AtomicU64& OwnerOf(const Operation& operation, uint32_t channel) {
    return channel_owners_[operation.owner_lane.load(std::memory_order_relaxed) + channel];
  }

  // Whether nothing may ever be reported on an operation, because it does not cross the network.
  bool MayHaveNoParts(const Operation& operation) const {
    return source() == TimingSource::kProxy || operation.is_untimed.load(std::memory_order_relaxed);
  }
  // Counts why a handle does not name an active operation.
  [[gnu::cold]] void CountStray(uint64_t state, uint64_t abbreviated) {
    const bool is_known = (TicketOf(state) & Handle::kTicketMask) == abbreviated;
    recorder_.CountLoss(is_known ? Loss::kAfterCompletion : Loss::kStaleHandle);
  }

 private:
  std::atomic<TimingSource> source_{TimingSource::kNone};
  std::atomic<bool> is_drifting_{false};  // untimed for good, from some operation on
  Recorder recorder_;
  WorkItems work_items_;
  alignas(64) AtomicU64 uncompared_items_{0};
  AtomicU64 oldest_{1};
  alignas(64) std::array<AtomicU64, 2 * Handle::kMaxChannels> channel_owners_{};
  std::array<Operation, kOperationEntries> operations_;
  std::array<Launch, kLaunchEntries> launches_;
};

}  // namespace nccl_exporter::plugin
