// SPDX-License-Identifier: Apache-2.0
// Parts of operations in flight: kernel channels, and proxy operations. For the thread that reports
// them, NCCL's progress thread: one at a time for a communicator. Events of a thread that should
// not be there are survived, at worst with a wrong duration (operation.h).
//
// Kernel channels are the hottest callbacks, dozens for each operation. They are inline, so that a
// callback is one function; everything that is rare is called out of line. Tickets come from
// handles: one that does not name an active operation is counted and ignored.
#pragma once

#include <cstdint>
#include <optional>

#include "plugin/operations/communicator_state.h"
#include "plugin/operations/operation.h"
#include "plugin/operations/operation_completer.h"
#include "plugin/segment/atomics.h"

namespace nccl_exporter::plugin {

// Made for one callback. Inlined, it costs nothing.
class PartTracker {
 public:
  explicit PartTracker(OperationCompleter& completer) : completer_(completer) {}

  // Kernel channels. `time_ns` is the GPU's, or CLOCK_MONOTONIC with TimingSource::kKernelCpu.
  bool StartChannel(uint64_t ticket, uint32_t channel, uint64_t time_ns);
  void StampChannel(uint64_t ticket, uint32_t channel, uint64_t time_ns);
  void StopChannel(uint64_t ticket, uint32_t channel);
  // When a channel started that has no stamp; nothing if a stamp of it would be refused, or would
  // not be its first.
  std::optional<uint64_t> UnstampedStart(uint64_t ticket, uint32_t channel);

  // Proxy operations.
  bool StartProxy(uint64_t ticket);
  void StopProxy(uint64_t ticket);
  // StopProxy() by fewer bits of the ticket, `mask`.
  void StopProxy(uint64_t abbreviated, uint64_t mask);

 private:
  static void BeginParts(Operation& operation, uint64_t ticket);
  static uint64_t StartOf(const Operation& operation, uint32_t channel) {
    const uint64_t first_ns = LoadRelaxed(operation.first_start_ns);
    const uint32_t low_ns = operation.start_low_ns[channel].load(std::memory_order_relaxed);
    return first_ns + static_cast<uint32_t>(low_ns - static_cast<uint32_t>(first_ns));
  }
  static void EndChannels(OperationCompleter& completer, Operation& operation, uint64_t ticket,
                          uint64_t seen);
  void CountProxyPart(Operation& operation, uint64_t ticket, uint64_t change, uint64_t now_ns);

  CommunicatorState& shared() { return completer_.shared(); }
  const LaunchJudge& judge() const { return completer_.launch_recorder().judge(); }

  OperationCompleter& completer_;
};

[[gnu::always_inline]] inline bool PartTracker::StartChannel(uint64_t abbreviated, uint32_t channel,
                                                             uint64_t time_ns) {
  Operation& operation = shared().At(abbreviated);
  const uint64_t state = LoadAcquire(operation.state);
  if (!IsActive(state, abbreviated)) return shared().CountStray(state, abbreviated), false;
  const uint64_t ticket = TicketOf(state);
  if (LoadRelaxed(operation.parts_ticket) != ticket) BeginParts(operation, ticket);
  const uint64_t bit = uint64_t{1} << channel;
  const uint64_t seen = LoadRelaxed(operation.seen);
  if (seen & bit)
    return shared().recorder().CountLoss(Loss::kStaleHandle), false;  // announced twice
  if (time_ns == 0) Reject(operation, Loss::kZeroTimestamp);

  if (seen == 0 || time_ns < LoadRelaxed(operation.first_start_ns))
    StoreRelaxed(operation.first_start_ns, time_ns);
  if (time_ns > LoadRelaxed(operation.latest_start_ns))
    StoreRelaxed(operation.latest_start_ns, time_ns);
  operation.start_low_ns[channel].store(static_cast<uint32_t>(time_ns), std::memory_order_relaxed);
  StoreRelaxed(operation.seen, seen | bit);
  StoreRelaxed(shared().OwnerOf(operation, channel), OrderOf(operation, ticket));
  if (seen == 0) {
    shared().recorder().ShowParts(
        ticket, kOneAnnounced);  // begun; the rest is shown when all seen have stopped
    if (judge().DatesStarts()) StoreRelaxed(operation.first_part_ns, NowNs());
  }
  return true;
}

[[gnu::always_inline]] inline void PartTracker::StampChannel(uint64_t abbreviated, uint32_t channel,
                                                             uint64_t time_ns) {
  Operation& operation = shared().At(abbreviated);
  const uint64_t state = LoadAcquire(operation.state);
  if (!IsActive(state, abbreviated)) return shared().CountStray(state, abbreviated);
  const uint64_t bit = uint64_t{1} << channel;
  if (LoadRelaxed(operation.parts_ticket) != TicketOf(state) ||
      !(LoadRelaxed(operation.seen) & bit)) {
    return shared().recorder().CountLoss(Loss::kStopWithoutStart);
  }
  // A later operation's stop whose start was skipped: NCCL reports it on the handle that is still
  // in the slot.
  if (LoadRelaxed(operation.stopped) & bit)
    return shared().recorder().CountLoss(Loss::kAfterCompletion);
  if (time_ns <= StartOf(operation, channel))
    Reject(operation, time_ns == 0 ? Loss::kZeroTimestamp : Loss::kStopBeforeStart);
  if (time_ns < LoadRelaxed(operation.soonest_stop_ns))
    StoreRelaxed(operation.soonest_stop_ns, time_ns);
  if (time_ns > LoadRelaxed(operation.last_stop_ns)) StoreRelaxed(operation.last_stop_ns, time_ns);
  StoreRelaxed(operation.stamped, LoadRelaxed(operation.stamped) | bit);
}

[[gnu::always_inline]] inline void PartTracker::StopChannel(uint64_t abbreviated,
                                                            uint32_t channel) {
  Operation& operation = shared().At(abbreviated);
  const uint64_t state = LoadAcquire(operation.state);
  if (!IsActive(state, abbreviated)) return shared().CountStray(state, abbreviated);
  const uint64_t ticket = TicketOf(state);
  const uint64_t bit = uint64_t{1} << channel;
  const uint64_t seen = LoadRelaxed(operation.seen);
  if (LoadRelaxed(operation.parts_ticket) != ticket || !(seen & bit)) {
    return shared().recorder().CountLoss(Loss::kStopWithoutStart);
  }
  const uint64_t stopped = LoadRelaxed(operation.stopped);
  if (stopped & bit) return shared().recorder().CountLoss(Loss::kAfterCompletion);
  if ((stopped | bit) == seen) return EndChannels(completer_, operation, ticket, seen);
  StoreRelease(operation.stopped, stopped | bit);
}

inline std::optional<uint64_t> PartTracker::UnstampedStart(uint64_t abbreviated, uint32_t channel) {
  const Operation& operation = shared().At(abbreviated);
  const uint64_t state = LoadAcquire(operation.state);
  const uint64_t bit = uint64_t{1} << channel;
  if (!IsActive(state, abbreviated) || LoadRelaxed(operation.parts_ticket) != TicketOf(state) ||
      (LoadRelaxed(operation.seen) & bit) == 0 ||
      ((LoadRelaxed(operation.stopped) | LoadRelaxed(operation.stamped)) & bit) != 0)
    return std::nullopt;
  return StartOf(operation, channel);
}

}  // namespace nccl_exporter::plugin
