// SPDX-License-Identifier: Apache-2.0
#include "plugin/operations/part_tracker.h"

#include <bit>

namespace nccl_exporter::plugin {

void PartTracker::BeginParts(Operation& operation, uint64_t ticket) {
  Zero(operation.proxy_parts, operation.seen, operation.stamped, operation.stopped,
       operation.latest_start_ns, operation.last_stop_ns, operation.last_part_ns,
       operation.first_part_ns, operation.rejection, operation.queued);
  StoreRelaxed(operation.first_start_ns, ~uint64_t{0});
  StoreRelaxed(operation.soonest_stop_ns, ~uint64_t{0});
  StoreRelease(operation.parts_ticket, ticket);
}

bool PartTracker::StartChannel(uint64_t abbreviated, uint32_t channel, uint64_t time_ns) {
  if (AddChannel(abbreviated, channel, time_ns)) return true;
  Operation& operation = At(abbreviated);
  const uint64_t state = LoadAcquire(operation.state);
  if (!IsActive(state, abbreviated)) return CountStray(state, abbreviated), false;
  const uint64_t ticket = TicketOf(state);
  if (LoadRelaxed(operation.parts_ticket) != ticket) BeginParts(operation, ticket);
  if (LoadRelaxed(operation.seen) != 0)  // announced twice
    return recorder().CountLoss(Loss::kStaleHandle), false;
  if (source() == TimingSource::kProxy) return false;  // another program changed the mask
  // Begun; the rest is shown when all seen have stopped.
  recorder().ShowParts(ticket, kOneAnnounced);
  if (DatesStarts()) StoreRelaxed(operation.first_part_ns, NowNs());
  Add(operation, ticket, 0, channel, time_ns);
  return true;
}

// A stop that comes late, or on the handle that NCCL still has from an earlier operation because it
// skipped the start.
void PartTracker::CountLate(const Operation& operation, uint64_t abbreviated, uint32_t channel) {
  const uint64_t state = LoadAcquire(operation.state);
  if (!IsActive(state, abbreviated)) return CountStray(state, abbreviated);
  const bool has_stopped = LoadRelaxed(operation.parts_ticket) == TicketOf(state) &&
                           (LoadRelaxed(operation.stopped) >> channel & 1) != 0;
  recorder().CountLoss(has_stopped ? Loss::kAfterCompletion : Loss::kStopWithoutStart);
}

// All channels that were seen have stopped. They may be all there are: fewer may come than were
// announced, or none were.
void PartTracker::EndChannels(Operation& operation, uint64_t abbreviated) {
  const uint64_t state = LoadAcquire(operation.state);
  if (!IsActive(state, abbreviated)) return CountStray(state, abbreviated);
  const uint64_t ticket = TicketOf(state);
  const uint64_t seen = LoadRelaxed(operation.seen);
  const uint64_t now_ns = NowNs();
  const auto channels = static_cast<uint32_t>(std::popcount(seen));
  const uint32_t announced = LoadRelaxed(operation.channels);
  StoreRelaxed(operation.last_part_ns, now_ns);
  StoreRelaxed(operation.lacks_channels, channels < announced);
  StoreRelease(operation.stopped, seen);  // last: another thread may end the operation now
  NoteLatest(operation, ticket);
  if (announced != 0 && channels >= announced) {
    Finish(operation, ticket, now_ns);
  } else {
    recorder().ShowParts(ticket, channels * (kOneAnnounced | kOneDone));
    recorder().ShowLastPart(ticket, now_ns);
  }
  Sweep(now_ns);
}

bool PartTracker::QueueProxy(uint64_t abbreviated) {
  Operation& operation = At(abbreviated);
  const uint64_t state = LoadAcquire(operation.state);
  if (!IsActive(state, abbreviated)) return CountStray(state, abbreviated), false;
  const uint64_t ticket = TicketOf(state);
  if (LoadRelaxed(operation.parts_ticket) != ticket) BeginParts(operation, ticket);
  operation.queued.fetch_add(1, std::memory_order_relaxed);
  return true;
}

bool PartTracker::StartProxy(uint64_t abbreviated) {
  if (!QueueProxy(abbreviated)) return false;
  return BeginProxy(abbreviated), true;
}

void PartTracker::BeginProxy(uint64_t abbreviated, uint64_t mask) {
  Operation& operation = At(abbreviated);
  const uint64_t state = LoadAcquire(operation.state);
  const uint64_t ticket = TicketOf(state);
  if ((ticket & mask) != abbreviated || PhaseOf(state) != Phase::kActive) return;
  const uint64_t now_ns = NowNs();
  if (LoadRelaxed(operation.parts_ticket) != ticket) BeginParts(operation, ticket);
  CountProxyPart(operation, ticket, kOneAnnounced, now_ns);
  // Those of a launch are handed over together: now those of every earlier launch have come.
  NoteLatest(operation, ticket);
  Sweep(now_ns);
}

void PartTracker::StopProxy(uint64_t abbreviated, uint64_t mask) {
  Operation& operation = At(abbreviated);
  const uint64_t state = LoadAcquire(operation.state);
  const uint64_t ticket = TicketOf(state);
  if ((ticket & mask) != abbreviated) return CountStray(state, ~uint64_t{0});
  if (PhaseOf(state) != Phase::kActive) return CountStray(state, ticket & Handle::kTicketMask);
  const uint64_t parts = LoadRelaxed(operation.proxy_parts);
  if (LoadRelaxed(operation.parts_ticket) != ticket || DoneOf(parts) >= AnnouncedOf(parts)) {
    return recorder().CountLoss(Loss::kStopWithoutStart);
  }
  const uint64_t now_ns = NowNs();
  CountProxyPart(operation, ticket, kOneDone, now_ns);
  NoteProxyDone(operation, ticket);
  Sweep(now_ns);
}

void PartTracker::CountProxyPart(Operation& operation, uint64_t ticket, uint64_t change,
                                 uint64_t now_ns) {
  StoreRelaxed(operation.last_part_ns, now_ns);
  // Last: another thread may end the operation now. Locked: with PXN two progress threads may
  // report parts of one operation, and none of them may be lost.
  const uint64_t parts =
      operation.proxy_parts.fetch_add(change, std::memory_order_acq_rel) + change;
  recorder().ShowParts(ticket, parts);
  recorder().ShowLastPart(ticket, now_ns);
}

}  // namespace nccl_exporter::plugin
