// SPDX-License-Identifier: Apache-2.0
// Sampler of one copy of libnccl: times collectives in windows of wall-clock time that are the same
// on every rank of the cluster, and changes NCCL's event mask at the windows' edges without harm.
// Any thread.
//
// NCCL has one mask in each copy of libnccl. A thread loads it at every API call, keeps the value
// in a thread-local word and copies it into the operation, *before* it announces the call. A
// collective may carry any value: host and device take it from the same operation. Two kinds of
// calls may not see a change of KernelCh:
//   - a Send and a Recv that share a work item: the device looks at the Recv's value, the host
//     waits for what each of the two has. A Send with the bit and a Recv without wait for ever, and
//     ncclCommDestroy with them. A Recv with the bit and a Send without do no harm.
//   - a captured graph, which keeps the values of its capture: its replays advance the device's
//     counters, and the host's only where the bit is set.
// So the mask changes only until the first point-to-point or captured call of the process, and then
// never again:
//
//   1. The mask word itself decides. A change is a compare-and-swap from one of the two values
//      (timed, untimed) to the other, tried by one thread at a time. A freeze is a compare-and-swap
//      that adds a bit which means nothing to NCCL (GroupApi is implied by every other bit). No
//      change succeeds on a frozen word, however late its thread comes.
//   2. The freeze is done inside the start event of the call, and so before any later call of that
//      group, whatever its thread, loads the mask: all of them see one value. Earlier calls of the
//      group are collectives.
//   3. The call that freezes has loaded the mask before its event. `changes_` is odd while a change
//      is tried, and even and higher afterwards. Each GroupApi stop notes it for its communicator
//      (release and acquire: what was read is not newer than the mask that the next call can load,
//      because calls on one communicator are ordered by the user). Is it even, and the same after
//      the freeze, then no change lies between the note and the freeze: the call carries the value
//      that was frozen. The mask stays as it stands.
//   4. Is it not the same, the call may carry either value. For a point-to-point call the frozen
//      one is then chosen so that both are right: timed after a Send (all Recvs of the group have
//      the bit), untimed after a Recv (no Send has it). Only the thread that froze the word stores
//      it. For a captured call the word stays as it stands, which is what the call carries unless a
//      change fell between its load and its event.
//   5. Step 4 does not protect other threads. So a process is sampled only while its threads never
//      overlap: each thread loads the mask after the group of the thread before has ended, and so
//      after any change made there. The first group that is found to overlap another one freezes
//      the mask.
//   6. What is left is a process whose threads have never overlapped. One thread ends a group at a
//      window's edge, in the nanoseconds between the load and the event of another's call; that
//      call is the first of its kind in the process, and captured. (For point-to-point calls it
//      takes three threads.)
//
// The bit of network timing (ProxyStep) may change at any moment, by another class
// (plugin/network/network_windows.h), and means nothing here: every comparison leaves it out, every
// change leaves it as it is.
//
// A change is tried only in the stop of a GroupApi event, and only when no communicator has a group
// open. NCCL may stop the event within an outer group of the user's (capturing_threads.h), and a
// group may open in that very moment. Either may then mix values among its collectives, which is
// harmless: each is timed on all its channels or on none, and any other call would have frozen the
// mask. Groups are numbered by communicator: one whose stop is lost is superseded by the next. A
// frozen or lost process keeps a constant mask.
//
// Drift. Where the device has counted work that the host has not, NCCL's host waits for the entry
// of an earlier item (event_policy.h), which must have been written. Untimed work between timed
// work does not break that:
//   7. All causes of drift are point-to-point calls or replays of captured graphs, where windows
//      are allowed at all (2.28; 2.29 and 2.30 with NCCL_ALLGATHERV_ENABLE=0). Each is preceded by
//      a freeze, so by 2 by one value.
//   8. Let k be the device's number of the first item that the host misses. Before k both count
//      alike. The host's numbers continue at k: every later wait is for an item k or later, never
//      for one before the freeze.
//   9. Items from k on all have the frozen value. Timed: each entry is written. Untimed: nothing
//      waits; what was timed before k waits for its own entry, which is written.
// Not excluded: a call of 4 or 6 whose value differs from the frozen one, and drifts. Its process
// may wait in ncclCommDestroy. docs/kernel-timing.md says so, beside what is not excluded without
// windows.
//
// A forked child finds the process's memory cleared: no sampler, and its first init stores the mask
// again.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "plugin/segment/atomics.h"
#include "proto/timing_source.h"

namespace nccl_exporter::plugin {

// Windows in which operations are timed: one in every period, as long as the duty says, its place
// in the period drawn from the period's number, so that no periodic workload keeps meeting or
// missing it.
struct SamplingWindows {
  uint64_t period_ns = 2'000'000'000;
  uint64_t window_ns = 200'000'000;  // at most the period
};

struct WindowPhase {
  bool is_open = false;
  uint64_t edge_ns = 0;  // CLOCK_REALTIME at which that may change
};

// A pure function of the wall clock (CLOCK_REALTIME).
WindowPhase PhaseAt(const SamplingWindows& windows, uint64_t realtime_ns);

// Both clocks at one moment.
struct ClockReading {
  uint64_t monotonic_ns = 0;
  uint64_t realtime_ns = 0;
};

// What the first call was that must not see a change, as far as it decides what the mask becomes.
enum class FreezingCall : uint8_t { kSend, kRecv, kOther };

// Sampling of one copy of libnccl. All zeros is its first state: not in use.
class Sampler {
 public:
  // Under the process's lock, at the first init by this copy. Stores the timed mask.
  void Open(int* mask, int timed_mask, const SamplingWindows& windows, uint64_t learning_ns,
            uint64_t now_ns);
  // Under the lock, after the last communicator of the copy.
  void Close() { mask_.store(&idle_mask_, std::memory_order_relaxed); }
  bool IsInUse() const { return mask() != nullptr && mask() != &idle_mask_; }
  bool Serves(const int* mask) const { return this->mask() == mask; }
  // A later init: the mask is left alone, unless someone else has overwritten it.
  void KeepMask();

  // Any thread, at any time.
  bool IsDue(uint64_t now_ns) const { return now_ns >= LoadRelaxed(next_change_ns_); }
  uint64_t changes() const { return LoadAcquire(changes_); }
  // All values of the mask that are this plugin's, without the network's bit.
  std::array<int, 4> OwnMasks() const {
    return {timed_mask_, untimed_mask_, frozen_timed(), frozen_untimed()};
  }
  bool TimesNow() const { return (LoadMask() & kTimingBit) != 0; }
  bool IsFrozen() const { return (LoadMask() & kFrozenBit) != 0; }
  SamplingState state() const;
  // Share of time in which operations are timed, in millionths.
  uint32_t DutyPpm() const;

  // Timed until then (CLOCK_REALTIME), whatever the windows are; 0, or a time that is over: as the
  // windows are. It changes when a change is tried and nothing else: the argument above is as it
  // was. A store of `next_change_ns_` that comes after a freeze costs one attempt, which fails.
  void KeepOpen(uint64_t until_realtime_ns) {
    StoreRelaxed(open_until_ns_, until_realtime_ns);
    if (state() == SamplingState::kWindows) StoreRelaxed(next_change_ns_, 0);
  }

  // A group has been opened; whether no other one has been since, asked when it ends. By handle.
  void NoteGroup(uint64_t group) { StoreRelaxed(latest_group_, group); }
  bool IsLatestGroup(uint64_t group) const { return LoadRelaxed(latest_group_) == group; }

  // A change: if Begin is true, the caller finds out whether any group is open, and ends it.
  bool BeginChange();
  // True if the state was left that state() showed before: once for a process's life, when learning
  // ends.
  bool EndChange(bool is_any_group_open, const ClockReading& now);

  // Inside the start of such a call; `changes_before` was noted at a moment before it was made.
  // True for the first.
  bool Freeze(FreezingCall call, uint64_t changes_before);

 private:
  static constexpr int kTimingBit = 64;  // KernelCh
  static constexpr int kProxyBit = 8;    // ProxyOp
  // GroupApi: implied by the others, so it means nothing to NCCL.
  static constexpr int kFrozenBit = 256;
  static constexpr int kNetworkBit = 16;  // ProxyStep
  // Of a change, each of which fails only if the network's bit has changed meanwhile.
  static constexpr int kAttempts = 4;
  static constexpr uint64_t kNever = ~uint64_t{0};
  // Until a change is tried again that found a group open.
  static constexpr uint64_t kRetryNs = 1'000'000;

  int* mask() const { return mask_.load(std::memory_order_relaxed); }
  int LoadMask() const { return __atomic_load_n(mask(), __ATOMIC_ACQUIRE); }
  static int WithoutNetwork(int mask) { return mask & ~kNetworkBit; }
  bool IsOwn(int mask) const {
    const int frozen = WithoutNetwork(mask) | kFrozenBit;
    return frozen == frozen_timed() || frozen == frozen_untimed();
  }
  int Replace(int from, int to);
  WindowPhase PhaseOf(uint64_t realtime_ns) const;
  int frozen_timed() const { return timed_mask_ | kFrozenBit; }
  int frozen_untimed() const { return untimed_mask_ | kFrozenBit; }

  std::atomic<int*> mask_;
  int idle_mask_;     // what threads find that come late, once the copy of libnccl may be unloaded
  int timed_mask_;    // with KernelCh, as the policy says
  int untimed_mask_;  // with ProxyOp in its place: operations that cross the network are followed
                      // by their proxies
  SamplingWindows windows_;
  AtomicU64 next_change_ns_;  // CLOCK_MONOTONIC
  AtomicU64 open_until_ns_;   // CLOCK_REALTIME
  AtomicU64 latest_group_;
  AtomicU64 changes_;  // twice their number; odd while one is tried
  std::atomic<bool> has_learned_;
};

}  // namespace nccl_exporter::plugin
