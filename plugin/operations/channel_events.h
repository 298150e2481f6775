// SPDX-License-Identifier: Apache-2.0
// The hottest callbacks: start, stamp and stop of a kernel channel, dozens for each operation. Inline, so that a
// callback is one function; everything that is rare is called out of line.
#pragma once

#include "plugin/operations/communicator.h"

namespace nccl_exporter {

// Whether a state word says: active, with the ticket that the handle abbreviates.
inline bool IsActive(uint64_t state, uint64_t abbreviated) {
  constexpr uint64_t kMask = PhaseWord(Handle::kTicketMask, Phase{0xff});
  return (state & kMask) == PhaseWord(abbreviated, Phase::kActive);
}

[[gnu::always_inline]] inline bool Communicator::StartChannel(uint64_t abbreviated, uint32_t channel,
                                                              uint64_t time_ns) {
  Operation& operation = At(abbreviated);
  const uint64_t state = LoadAcquire(operation.state);
  if (!IsActive(state, abbreviated)) return CountStray(state, abbreviated), false;
  const uint64_t ticket = TicketOf(state);
  if (LoadRelaxed(operation.parts_ticket) != ticket) BeginParts(operation, ticket);
  const uint64_t bit = uint64_t{1} << channel;
  const uint64_t seen = LoadRelaxed(operation.seen);
  if (seen & bit) return recorder_.CountLoss(Loss::kStaleHandle), false;  // announced twice
  if (time_ns == 0) Reject(operation, Loss::kZeroTimestamp);

  if (seen == 0 || time_ns < LoadRelaxed(operation.first_start_ns)) StoreRelaxed(operation.first_start_ns, time_ns);
  if (time_ns > LoadRelaxed(operation.latest_start_ns)) StoreRelaxed(operation.latest_start_ns, time_ns);
  operation.start_low_ns[channel].store(static_cast<uint32_t>(time_ns), std::memory_order_relaxed);
  StoreRelaxed(operation.seen, seen | bit);
  StoreRelaxed(OwnerOf(operation, channel), OrderOf(operation, ticket));
  if (seen == 0) {
    recorder_.ShowParts(ticket, kOneAnnounced);  // begun; the rest is shown when all seen have stopped
    if (dates_starts_.load(std::memory_order_relaxed)) StoreRelaxed(operation.first_part_ns, NowNs());
  }
  return true;
}

[[gnu::always_inline]] inline void Communicator::StampChannel(uint64_t abbreviated, uint32_t channel,
                                                              uint64_t time_ns) {
  Operation& operation = At(abbreviated);
  const uint64_t state = LoadAcquire(operation.state);
  if (!IsActive(state, abbreviated)) return CountStray(state, abbreviated);
  const uint64_t bit = uint64_t{1} << channel;
  if (LoadRelaxed(operation.parts_ticket) != TicketOf(state) || !(LoadRelaxed(operation.seen) & bit)) {
    return recorder_.CountLoss(Loss::kStopWithoutStart);
  }
  // A later operation's stop whose start was skipped: NCCL tells it on the handle that is still in the slot.
  if (LoadRelaxed(operation.stopped) & bit) return recorder_.CountLoss(Loss::kAfterCompletion);
  const uint64_t first_ns = LoadRelaxed(operation.first_start_ns);
  const uint32_t low_ns = operation.start_low_ns[channel].load(std::memory_order_relaxed);
  const uint64_t start_ns = first_ns + static_cast<uint32_t>(low_ns - static_cast<uint32_t>(first_ns));
  if (time_ns <= start_ns) Reject(operation, time_ns == 0 ? Loss::kZeroTimestamp : Loss::kStopBeforeStart);
  if (time_ns < LoadRelaxed(operation.soonest_stop_ns)) StoreRelaxed(operation.soonest_stop_ns, time_ns);
  if (time_ns > LoadRelaxed(operation.last_stop_ns)) StoreRelaxed(operation.last_stop_ns, time_ns);
  StoreRelaxed(operation.stamped, LoadRelaxed(operation.stamped) | bit);
}

[[gnu::always_inline]] inline void Communicator::StopChannel(uint64_t abbreviated, uint32_t channel) {
  Operation& operation = At(abbreviated);
  const uint64_t state = LoadAcquire(operation.state);
  if (!IsActive(state, abbreviated)) return CountStray(state, abbreviated);
  const uint64_t ticket = TicketOf(state);
  const uint64_t bit = uint64_t{1} << channel;
  const uint64_t seen = LoadRelaxed(operation.seen);
  if (LoadRelaxed(operation.parts_ticket) != ticket || !(seen & bit)) {
    return recorder_.CountLoss(Loss::kStopWithoutStart);
  }
  const uint64_t stopped = LoadRelaxed(operation.stopped);
  if (stopped & bit) return recorder_.CountLoss(Loss::kAfterCompletion);
  StoreRelaxed(operation.stopped, stopped | bit);
  if ((stopped | bit) == seen) EndChannels(operation, ticket);
}

}  // namespace nccl_exporter
