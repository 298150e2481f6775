// SPDX-License-Identifier: Apache-2.0
#include "plugin/operations/part_tracker.h"

#include <bit>

namespace nccl_exporter::plugin {

// Kernel channels.

void PartTracker::BeginParts(Operation& operation, uint64_t ticket) {
  StoreRelaxed(operation.proxy_parts, 0);
  StoreRelaxed(operation.seen, 0);
  StoreRelaxed(operation.stamped, 0);
  StoreRelaxed(operation.stopped, 0);
  StoreRelaxed(operation.first_start_ns, 0);
  StoreRelaxed(operation.latest_start_ns, 0);
  StoreRelaxed(operation.last_stop_ns, 0);
  StoreRelaxed(operation.soonest_stop_ns, ~uint64_t{0});
  StoreRelaxed(operation.last_part_ns, 0);
  StoreRelaxed(operation.first_part_ns, 0);
  operation.rejection.store(0, std::memory_order_relaxed);
  StoreRelease(operation.parts_ticket, ticket);
}

// All channels that were seen have stopped. They may be all there are: fewer may come than were
// announced, or none were.
void PartTracker::EndChannels(OperationCompleter& completer, Operation& operation, uint64_t ticket,
                              uint64_t seen) {
  const uint64_t now_ns = NowNs();
  const auto channels = static_cast<uint32_t>(std::popcount(seen));
  const uint32_t announced = operation.channels.load(std::memory_order_relaxed);
  StoreRelaxed(operation.last_part_ns, now_ns);
  operation.lacks_channels.store(channels < announced, std::memory_order_relaxed);
  StoreRelease(operation.stopped, seen);  // last: another thread may end the operation now
  completer.NoteLatest(operation, ticket);
  if (announced != 0 && channels >= announced) {
    completer.Finish(operation, ticket, now_ns);
  } else {
    completer.shared().recorder().ShowParts(ticket, channels * (kOneAnnounced | kOneDone));
    completer.shared().recorder().ShowLastPart(ticket, now_ns);
  }
  completer.Sweep(now_ns);
}

// Proxy operations.

bool PartTracker::StartProxy(uint64_t abbreviated) {
  Operation& operation = shared().At(abbreviated);
  const uint64_t state = LoadAcquire(operation.state);
  if (!IsActive(state, abbreviated)) return shared().CountStray(state, abbreviated), false;
  const uint64_t ticket = TicketOf(state);
  const uint64_t now_ns = NowNs();
  if (LoadRelaxed(operation.parts_ticket) != ticket) BeginParts(operation, ticket);
  CountProxyPart(operation, ticket, kOneAnnounced, now_ns);
  // NCCL hands the proxy operations of a launch over together: now those of every earlier launch
  // have come.
  completer_.NoteLatest(operation, ticket);
  completer_.Sweep(now_ns);
  return true;
}

void PartTracker::StopProxy(uint64_t abbreviated) {
  Operation& operation = shared().At(abbreviated);
  const uint64_t state = LoadAcquire(operation.state);
  if (!IsActive(state, abbreviated)) return shared().CountStray(state, abbreviated);
  const uint64_t ticket = TicketOf(state);
  const uint64_t parts = LoadRelaxed(operation.proxy_parts);
  if (LoadRelaxed(operation.parts_ticket) != ticket || DoneOf(parts) >= AnnouncedOf(parts)) {
    return shared().recorder().CountLoss(Loss::kStopWithoutStart);
  }
  const uint64_t now_ns = NowNs();
  CountProxyPart(operation, ticket, kOneDone, now_ns);
  completer_.Sweep(now_ns);
}

void PartTracker::StopProxy(uint64_t abbreviated, uint64_t mask) {
  const uint64_t state = LoadAcquire(shared().At(abbreviated).state);
  if ((TicketOf(state) & mask) != abbreviated) return shared().CountStray(state, ~uint64_t{0});
  StopProxy(TicketOf(state) & Handle::kTicketMask);
}

void PartTracker::CountProxyPart(Operation& operation, uint64_t ticket, uint64_t change,
                                 uint64_t now_ns) {
  StoreRelaxed(operation.last_part_ns, now_ns);
  // Last: another thread may end the operation now. Locked: with PXN two progress threads may
  // report parts of one operation, and none of them may be lost.
  const uint64_t parts =
      operation.proxy_parts.fetch_add(change, std::memory_order_acq_rel) + change;
  shared().recorder().ShowParts(ticket, parts);
  shared().recorder().ShowLastPart(ticket, now_ns);
}

}  // namespace nccl_exporter::plugin
