// SPDX-License-Identifier: Apache-2.0
// Completion of operations: which are over, by their own events or by those of later ones, and which launches are
// done. Any thread.
//
// Each operation ends once: whoever takes its state from Active to Done ends it (operation.h). NCCL runs the operations
// of a communicator in order, so the end of a later one tells of earlier ones (Sweep).
#pragma once

#include <cstdint>

#include "plugin/operations/communicator_state.h"
#include "plugin/operations/launch_recorder.h"
#include "plugin/operations/operation.h"
#include "plugin/segment/word.h"

namespace nccl_exporter {

class OperationCompleter {
 public:
  OperationCompleter(CommunicatorState& state, LaunchRecorder& recorder) : state_(state), launch_recorder_(recorder) {}

  // Leaves every entry free, for the communicator that will use this place next. What is not complete is not counted
  // as such. Under the process's lock.
  void Finalize();

  // The operation is over.
  void Finish(Operation& operation, uint64_t ticket, uint64_t now_ns);
  // Ends an operation that is not over: it has no interval.
  void GiveUp(Operation& operation, uint64_t ticket, uint64_t now_ns);
  // No member will join the launch any more. `ticket` as in handles.
  void CloseLaunch(uint64_t ticket);

  // The operation has run all channels seen of it, or has begun a proxy operation.
  void NoteLatest(const Operation& operation, uint64_t ticket) {
    if (ticket <= LoadRelaxed(latest_)) return;
    StoreRelaxed(latest_, ticket);
    StoreRelaxed(latest_order_, OrderOf(operation, ticket));
  }
  // Whether Sweep has anything to look at.
  bool IsBehind() const { return LoadRelaxed(state_.oldest()) < LoadRelaxed(latest_); }
  // Ends operations of which no event is expected any more, from the oldest on, some at each event.
  void Sweep(uint64_t now_ns);

  // The ring has come round to an entry that is still held: frees it if that is over. False if the ring is full.
  [[gnu::cold]] bool IsFreed(Operation& operation);
  [[gnu::cold]] bool IsFreed(Launch& launch);

 private:
  bool TakeDone(Operation& operation, uint64_t ticket);
  void RecordDone(Operation& operation, uint64_t ticket, uint64_t now_ns);
  void Resolve(Operation& operation, uint64_t ticket, uint64_t now_ns);
  bool FinalizeOperation(Operation& operation, uint64_t now_ns);
  bool IsOvertaken(const Operation& operation, uint64_t ticket, uint64_t now_ns);
  bool IsTakenOver(const Operation& operation, uint64_t order);
  void Close(Launch& launch, uint64_t now_ns);
  void MakeRoom(Operation& operation);
  void EndIfOver(Operation& operation, uint64_t ticket, uint64_t now_ns);
  void EndIfOver(Launch& launch, uint64_t now_ns);

  CommunicatorState& state_;
  LaunchRecorder& launch_recorder_;
  // The highest ticket that NoteLatest was given, and its order.
  alignas(64) Word latest_{0};
  Word latest_order_{0};
};

}  // namespace nccl_exporter
