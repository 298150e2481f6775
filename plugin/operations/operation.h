// SPDX-License-Identifier: Apache-2.0
// Operation and launch while they are followed: entries of two rings in private memory, one pair of
// rings per communicator. Any thread.
//
// An entry is named by a ticket, a number that only grows; its place is ticket % ring size.
// `Operation::state` holds the ticket and the phase:
//
//   Free --started--> Active --all parts done, given up, or finalized--> Done --recorded--> Free
//
//   1. Free to Active: the one thread that starts operations loads Free with acquire, writes the
//      first cache line, then stores `state` with release.
//   2. A thread with a handle loads `state` with acquire and compares ticket and phase. An old
//      ticket differs, so the event is counted and ignored. An equal one has seen 1.
//   3. The cache lines behind the first are written by the thread that reports parts, NCCL's
//      progress thread: one at a time for a communicator. `parts_ticket` says whose parts these
//      are, so a late event of an earlier operation does not spoil those of the next one.
//   4. Active to Done is a compare-and-swap, which exactly one thread wins. It alone goes on to 5.
//   5. The winner takes one from `Launch::pending`. The thread that brings it to kDone records all
//      members. Both steps acquire and release, so it sees what every member's winner saw.
//   6. Done to Free: the recording thread stores `state` with release, after its last load of the
//      entry. 1 sees that.
//   7. A thread that ends an operation whose parts another thread reports (Sweep at a start) learns
//      by ProgressOf whether all seen have stopped. `parts_ticket` is stored with release behind
//      the zeros of its parts, `stopped` and `proxy_parts` behind all that was written of the part.
//      ProgressOf acquires these, and loads `stopped` before `seen`: it sees no part of an earlier
//      operation, every part that began before the stop, and the times that belong to it.
//   8. A thread that should not be there finds valid memory: every field is atomic and no memory is
//      given back. The recorder does not read parts of an operation that was given up
//      (`is_given_up`), so the worst is a wrong duration of one that two threads report at once.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "plugin/operations/handle.h"
#include "plugin/segment/atomics.h"
#include "plugin/segment/recorder.h"
#include "proto/collective.h"
#include "proto/loss.h"
#include "proto/shm_layout.h"

namespace nccl_exporter::plugin {

enum class Phase : uint8_t { kFree = 0, kActive = 1, kDone = 2 };

constexpr uint64_t PhaseWord(uint64_t ticket, Phase phase) {
  return ticket << 8 | static_cast<uint64_t>(phase);
}
constexpr Phase PhaseOf(uint64_t word) { return static_cast<Phase>(word & 0xff); }
constexpr uint64_t TicketOf(uint64_t word) { return word >> 8; }
// Whether a state says: active, with the ticket that a handle abbreviates.
constexpr bool IsActive(uint64_t state, uint64_t abbreviated) {
  constexpr uint64_t kMask = PhaseWord(Handle::kTicketMask, Phase{0xff});
  return (state & kMask) == PhaseWord(abbreviated, Phase::kActive);
}

// 512 bytes, a power of two: multiplying by anything else to find an entry made each event of a
// channel 3 % slower.
struct alignas(512) Operation {
  AtomicU64 state{0};
  AtomicU64 call_ns{0};
  AtomicU64 bytes{0};
  AtomicU64 sequence{0};
  AtomicU64 launch{0};           // ticket; 0: none
  AtomicU64 previous_member{0};  // ticket of the member of the same launch that was started before
  std::atomic<uint32_t> channels{0};  // announced
  std::atomic<Function> function{Function::kOther};
  // Kind of channel owners that it belongs to: receives have their own.
  std::atomic<uint8_t> owner_lane{0};
  std::atomic<bool> call_is_bound{false};
  std::atomic<bool> channels_are_exact{false};
  std::atomic<bool> is_untimed{false};
  std::atomic<bool> is_carried{false};
  // Its communicator was finalized before it was complete.
  std::atomic<bool> is_not_recorded{false};
  // Ended before it was seen to be over. Its parts are not read any more: the thread that reports
  // them may be in them.
  std::atomic<bool> is_given_up{false};
  std::atomic<uint32_t> first_item{0};  // as WorkItems gave it

  alignas(64) AtomicU64 parts_ticket{0};
  AtomicU64 proxy_parts{0};  // announced << 32 | done
  AtomicU64 seen{0};         // channels, one bit each
  AtomicU64 stamped{0};      // channels whose stop time is known
  AtomicU64 stopped{0};
  AtomicU64 first_start_ns{0};
  AtomicU64 last_stop_ns{0};
  AtomicU64 soonest_stop_ns{0};  // of the channels that have one

  alignas(64) AtomicU64 latest_start_ns{0};
  AtomicU64 last_part_ns{0};                // CLOCK_MONOTONIC; 0: not read
  AtomicU64 first_part_ns{0};               // CLOCK_MONOTONIC; 0: not read
  std::atomic<bool> lacks_channels{false};  // fewer have been seen than were announced
  std::atomic<uint8_t> rejection{0};        // 1 + Loss of the first implausible time stamp
  // Low halves of the channels' start times: no channel starts 4 s before another of the same
  // operation.
  std::array<std::atomic<uint32_t>, Handle::kMaxChannels> start_low_ns{};
  std::atomic<uint32_t> queued{0};  // proxy operations, begun or not
};
static_assert(sizeof(Operation) == 512);

// A Group event: the operations of one kernel launch. Members join from the thread that announces
// the launch. `pending` begins at kOpen, loses one with every member that is done, and gains the
// number of members and kClosed when the launch is closed: it becomes kDone exactly once, when the
// launch is closed and all members are done.
struct alignas(64) Launch {
  // More than there are members, so that it never falls below 0.
  static constexpr uint64_t kOpen = uint64_t{1} << 32;
  static constexpr uint64_t kClosed = uint64_t{1} << 62;
  static constexpr uint64_t kDone = kOpen + kClosed;

  AtomicU64 ticket{0};  // 0: free
  AtomicU64 members{0};
  AtomicU64 last_member{0};  // ticket
  AtomicU64 pending{kOpen};
  AtomicU64 rejection{0};  // 1 + Loss: why no member is timed, known before their time stamps are
  // CLOCK_MONOTONIC when the launch before was announced, and so before this one was made.
  AtomicU64 called_after{0};
};

inline constexpr uint64_t kLaunchEntries = kOperationEntries;
static_assert(kOperationEntries < Handle::kTicketMask);

// Order of operations of different launches: those of one launch share its ticket.
inline uint64_t OrderOf(const Operation& operation, uint64_t ticket) {
  const uint64_t launch = LoadRelaxed(operation.launch);
  return launch != 0 ? launch : ticket;
}

// Parts of an operation, channels or proxy operations: announced << 32 | done, as in the segment.
inline constexpr uint64_t kOneAnnounced = uint64_t{1} << 32;
inline constexpr uint64_t kOneDone = 1;
inline uint64_t AnnouncedOf(uint64_t parts) { return parts >> 32; }
inline uint64_t DoneOf(uint64_t parts) { return parts & 0xffffffff; }

// Progress of the operation with this ticket (7 above). Any thread.
enum class Progress : uint8_t { kNoPart, kRunning, kAllStopped };
inline Progress ProgressOf(const Operation& operation, uint64_t ticket) {
  if (LoadAcquire(operation.parts_ticket) != ticket) return Progress::kNoPart;
  const uint64_t parts = LoadAcquire(operation.proxy_parts);
  const uint64_t stopped = LoadAcquire(operation.stopped);
  const uint64_t seen = LoadRelaxed(operation.seen);
  if (seen == 0 && parts == 0) return Progress::kNoPart;
  const bool is_over = seen == stopped && AnnouncedOf(parts) == DoneOf(parts);
  return is_over ? Progress::kAllStopped : Progress::kRunning;
}

// Whether proxy operations of it are queued that have not begun, behind others of their connection
// or for good: no transport but the network takes them up.
inline bool AwaitsProxies(const Operation& operation, uint64_t ticket) {
  return LoadAcquire(operation.parts_ticket) == ticket &&
         LoadRelaxed(operation.queued) > AnnouncedOf(LoadRelaxed(operation.proxy_parts));
}

// The first implausible time stamp decides.
inline void Reject(Operation& operation, Loss loss) {
  if (LoadRelaxed(operation.rejection) == 0) {
    StoreRelaxed(operation.rejection, static_cast<uint8_t>(1 + static_cast<uint8_t>(loss)));
  }
}

// The next ticket, never one that a handle would abbreviate to 0. `is_alone`: no other thread takes
// one at the same time.
inline uint64_t NextTicket(AtomicU64& given_out, bool is_alone) {
  const uint64_t ticket = Add(given_out, 1, is_alone) + 1;
  return (ticket & Handle::kTicketMask) != 0 ? ticket : Add(given_out, 1, is_alone) + 1;
}

}  // namespace nccl_exporter::plugin
