// SPDX-License-Identifier: Apache-2.0
// Completion of operations: which are over, by their own events or by those of later ones, and
// which launches are done. Any thread.
//
// Each operation ends once: the thread that takes its state from Active to Done ends it
// (operation.h). NCCL runs the operations of a communicator in order, so the end of a later one
// shows that earlier ones are over (Sweep).
//
// Sweep passes for good what it does not find active. So it must see the start of every operation
// with a ticket below `latest_`. The thread that reports an operation has acquired its start, and
// with it the earlier ones, and then stores `latest_` with release. Sweep acquires `latest_` before
// it looks at entries.
#pragma once

#include <cstdint>

#include "plugin/operations/communicator_state.h"
#include "plugin/operations/launch_recorder.h"
#include "plugin/operations/operation.h"
#include "plugin/segment/atomics.h"

namespace nccl_exporter::plugin {

class OperationCompleter : public LaunchRecorder {
 public:
  // Leaves every entry free, for the communicator that will use this place next. What is not
  // complete is not counted as such. Under the process's lock.
  void Finalize();

  void Finish(Operation& operation, uint64_t ticket, uint64_t now_ns);
  // Ends an operation that is not over.
  void GiveUp(Operation& operation, uint64_t ticket, uint64_t now_ns);
  // No member will join the launch any more. `ticket` as in handles.
  void CloseLaunch(uint64_t ticket);

  // The operation has run all channels seen of it, or has begun a proxy operation.
  void NoteLatest(const Operation& operation, uint64_t ticket) {
    if (ticket <= LoadRelaxed(latest_)) return;
    StoreRelease(latest_, ticket);
    StoreRelaxed(latest_order_, OrderOf(operation, ticket));
  }
  // A proxy operation of it is done, so its kernel runs, and those of earlier launches have ended.
  void NoteProxyDone(const Operation& operation, uint64_t ticket) {
    if (ticket <= LoadRelaxed(latest_done_)) return;
    StoreRelaxed(latest_done_, ticket);
    StoreRelaxed(latest_done_order_, OrderOf(operation, ticket));
  }
  bool IsBehind() const { return LoadRelaxed(oldest_) < LoadRelaxed(latest_); }
  // Ends operations of which no event is expected any more, from the oldest on, some at each event.
  void Sweep(uint64_t now_ns) {
    if (IsBehind()) SweepSome(now_ns);
  }

  // The ring has come round to an entry that is still held: frees it if that is over. False if the
  // ring is full.
  [[gnu::cold]] bool IsFreed(Operation& operation);
  [[gnu::cold]] bool IsFreed(Launch& launch);

 private:
  bool TakeDone(Operation& operation, uint64_t ticket);
  void RecordDone(Operation& operation, uint64_t ticket, uint64_t now_ns);
  // Whether nothing may ever be reported on an operation, because it does not cross the network.
  bool CannotBeSeen(const Operation& operation, Progress progress) const {
    return progress == Progress::kNoPart &&
           (source() == TimingSource::kProxy || LoadRelaxed(operation.is_untimed));
  }
  void SweepSome(uint64_t now_ns);
  void Resolve(Operation& operation, uint64_t ticket, uint64_t now_ns);
  bool FinalizeOperation(Operation& operation, uint64_t now_ns);
  bool IsOvertaken(const Operation& operation, uint64_t ticket, uint64_t now_ns);
  bool IsTakenOver(const Operation& operation, uint64_t order);
  void Close(Launch& launch, uint64_t now_ns);
  void EndIfOver(Operation& operation, uint64_t ticket, uint64_t now_ns);
  void EndIfOver(Launch& launch, uint64_t now_ns);

  // The highest ticket that NoteLatest was given, and its order.
  alignas(64) AtomicU64 latest_{0};
  AtomicU64 latest_order_{0};
  // Those that NoteProxyDone was given.
  AtomicU64 latest_done_{0};
  AtomicU64 latest_done_order_{0};
  // The launch that IsFreed() found in flight last, and when.
  AtomicU64 vain_launch_{0};
  AtomicU64 vain_ns_{0};
};

// True for one thread only, which then ends the operation.
inline bool OperationCompleter::TakeDone(Operation& operation, uint64_t ticket) {
  return CompareExchange(operation.state, PhaseWord(ticket, Phase::kActive),
                         PhaseWord(ticket, Phase::kDone));
}

inline void OperationCompleter::Finish(Operation& operation, uint64_t ticket, uint64_t now_ns) {
  if (TakeDone(operation, ticket)) RecordDone(operation, ticket, now_ns);
}

// By the thread that has taken it from Active to Done.
inline void OperationCompleter::RecordDone(Operation& operation, uint64_t ticket, uint64_t now_ns) {
  const uint64_t launch_ticket = LoadRelaxed(operation.launch);
  if (launch_ticket == 0) return RecordMembers(ticket, 1, nullptr, now_ns);
  Launch& launch = LaunchAt(launch_ticket);
  // Once the launch is closed, only members that are not done change `pending`: the last of them
  // needs no locked instruction.
  const bool is_last = LoadAcquire(launch.pending) == Launch::kDone + 1;
  if (is_last) StoreRelaxed(launch.pending, Launch::kDone);
  if (is_last || launch.pending.fetch_sub(1, std::memory_order_acq_rel) - 1 == Launch::kDone) {
    Record(launch, now_ns);
  }
}

}  // namespace nccl_exporter::plugin
