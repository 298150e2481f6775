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

#include "plugin/operations/communicator_state.h"
#include "plugin/operations/operation.h"
#include "plugin/operations/operation_completer.h"
#include "plugin/segment/atomics.h"

namespace nccl_exporter::plugin {

class PartTracker : public OperationCompleter {
 public:
  // Kernel channels. `time_ns` is the GPU's, or CLOCK_MONOTONIC with TimingSource::kKernelCpu.
  // The start of a channel; false: it is refused.
  bool StartChannel(uint64_t ticket, uint32_t channel, uint64_t time_ns);
  // StartChannel() of all but the first channel; false: it is to be called, and nothing was done.
  bool AddChannel(uint64_t ticket, uint32_t channel, uint64_t time_ns);
  void StampChannel(uint64_t ticket, uint32_t channel, uint64_t time_ns);
  void StopChannel(uint64_t ticket, uint32_t channel);

  // Proxy operations. One that begins later counts from then on: the operation may have none that
  // the network transport takes up. False: it is refused.
  bool QueueProxy(uint64_t ticket);
  bool StartProxy(uint64_t ticket);
  // By the bits `mask` of the ticket. One whose operation is over is left to its stop.
  void BeginProxy(uint64_t abbreviated, uint64_t mask = Handle::kTicketMask);
  void StopProxy(uint64_t abbreviated, uint64_t mask = Handle::kTicketMask);

 private:
  static void BeginParts(Operation& operation, uint64_t ticket);
  static uint64_t StartOf(const Operation& operation, uint32_t channel) {
    const uint64_t first_ns = LoadRelaxed(operation.first_start_ns);
    const uint32_t low_ns = LoadRelaxed(operation.start_low_ns[channel]);
    return first_ns + static_cast<uint32_t>(low_ns - static_cast<uint32_t>(first_ns));
  }
  // Channels that have started and not stopped, if the parts are those of the operation. By the
  // parts alone, which only this thread writes: an operation that another thread has given up goes
  // on here until EndChannels() looks at its state, and nobody reads its parts.
  static uint64_t Running(const Operation& operation, uint64_t abbreviated) {
    const bool is_current =
        (LoadRelaxed(operation.parts_ticket) & Handle::kTicketMask) == abbreviated;
    return is_current ? LoadRelaxed(operation.seen) & ~LoadRelaxed(operation.stopped) : 0;
  }
  void Add(Operation& operation, uint64_t ticket, uint64_t seen, uint32_t channel,
           uint64_t time_ns);
  [[gnu::cold]] void CountLate(const Operation& operation, uint64_t abbreviated, uint32_t channel);
  void EndChannels(Operation& operation, uint64_t abbreviated);
  void CountProxyPart(Operation& operation, uint64_t ticket, uint64_t change, uint64_t now_ns);
};

[[gnu::always_inline]] inline bool PartTracker::AddChannel(uint64_t abbreviated, uint32_t channel,
                                                           uint64_t time_ns) {
  Operation& operation = At(abbreviated);
  const uint64_t ticket = LoadRelaxed(operation.parts_ticket);
  const bool is_current = (ticket & Handle::kTicketMask) == abbreviated &&
                          LoadAcquire(operation.state) == PhaseWord(ticket, Phase::kActive);
  const uint64_t seen = LoadRelaxed(operation.seen);
  if (!is_current || seen == 0 || (seen >> channel & 1) != 0) return false;
  Add(operation, ticket, seen, channel, time_ns);
  return true;
}

[[gnu::always_inline]] inline void PartTracker::Add(Operation& operation, uint64_t ticket,
                                                    uint64_t seen, uint32_t channel,
                                                    uint64_t time_ns) {
  if (time_ns < LoadRelaxed(operation.first_start_ns))
    StoreRelaxed(operation.first_start_ns, time_ns);
  if (time_ns > LoadRelaxed(operation.latest_start_ns))
    StoreRelaxed(operation.latest_start_ns, time_ns);
  StoreRelaxed(operation.start_low_ns[channel], static_cast<uint32_t>(time_ns));
  StoreRelaxed(operation.seen, seen | uint64_t{1} << channel);
  StoreRelaxed(OwnerOf(operation, channel), OrderOf(operation, ticket));
}

[[gnu::always_inline]] inline void PartTracker::StampChannel(uint64_t abbreviated, uint32_t channel,
                                                             uint64_t time_ns) {
  Operation& operation = At(abbreviated);
  const uint64_t bit = uint64_t{1} << channel;
  if ((Running(operation, abbreviated) & bit) == 0)
    return CountLate(operation, abbreviated, channel);
  if (time_ns <= StartOf(operation, channel))
    Reject(operation, time_ns == 0 ? Loss::kZeroTimestamp : Loss::kStopBeforeStart);
  if (time_ns < LoadRelaxed(operation.soonest_stop_ns))
    StoreRelaxed(operation.soonest_stop_ns, time_ns);
  if (time_ns > LoadRelaxed(operation.last_stop_ns)) StoreRelaxed(operation.last_stop_ns, time_ns);
  StoreRelaxed(operation.stamped, LoadRelaxed(operation.stamped) | bit);
}

[[gnu::always_inline]] inline void PartTracker::StopChannel(uint64_t abbreviated,
                                                            uint32_t channel) {
  Operation& operation = At(abbreviated);
  const uint64_t bit = uint64_t{1} << channel;
  const uint64_t running = Running(operation, abbreviated);
  if ((running & bit) == 0) return CountLate(operation, abbreviated, channel);
  if (running == bit) return EndChannels(operation, abbreviated);
  StoreRelease(operation.stopped, LoadRelaxed(operation.stopped) | bit);
}

}  // namespace nccl_exporter::plugin
