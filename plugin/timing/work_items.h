// SPDX-License-Identifier: Apache-2.0
// Count of the work items that a communicator was called for, with their times: what could have
// overwritten NCCL's ring of time stamps. Threads that call NCCL note items; the thread that judges
// time stamps reads them.
//
// Each channel has a ring of 64 time stamps: an item takes the place of the one 64 before it. An
// API call is at most one item on each channel, so calls are counted: operations alone would miss
// those that are not followed, and the plain Broadcasts of NCCL 2.29 and later, which announce
// none. A Send and the Receive that NCCL pairs with it share an item and count as two. Too high a
// count costs time stamps that could be believed; too low a count would let wrong ones pass.
//
// NCCL may run the calls of one group in another order than they were made in, and announces the
// operations of a group in the order in which they run. So whatever can follow an operation is
// among the calls from the first of its group on, and the items noted since its launch was
// announced. Operations may be announced behind calls that were made after their own (a replay, and
// eager calls behind it, by a host function of the stream). So an operation's own call says by its
// time how far the announcements have come. A group begins where it is certain: at a call outside
// of all groups (groupDepth 1, from API v5 on; deeper groups may be several GroupApi events), and
// at a call before which all calls had been announced. Else the call counts to the group before,
// whose operations then seem to have more items behind them.
//
// Why a time that is read is the item's own, or an older one:
//   1. A call is noted by one thread at a time; other items by any thread that announces.
//   2. A thread that notes item n has loaded the counts and found n items. It stores the time of n
//      in place n % kKept with release, and then raises a count with release.
//   3. A reader loads the counts with acquire, so the time of every item that it counts is there.
//   4. It loads the time of item i with acquire, then the counts again. Had a later item (i + kKept
//      or more) been stored there, it would see kKept items behind i by 2: no time is returned.
//   5. A call and another item that are noted at one moment store at one place, and the next place
//      keeps an older time. An older time makes less believable, not more.
#pragma once

#include <array>
#include <cstdint>

#include "plugin/segment/atomics.h"

namespace nccl_exporter::plugin {

class WorkItems {
 public:
  // Entries of NCCL's ring for each channel.
  static constexpr uint32_t kRingEntries = 64;
  // Calls whose time is kept: a followed host is at most 512 operations ahead, and as many
  // Broadcasts may lie between.
  static constexpr uint32_t kKept = 1024;
  // Where calls are not announced (2.27 and before) a kernel may run before its operations are
  // known: room for a group of that many.
  static constexpr uint32_t kUnannounced = 16;
  // Calls not announced yet that are known one by one. Where more wait, operations seem to be
  // older.
  static constexpr uint32_t kWaiting = 256;
  // An operation knows the time of its call in such units, rounded down (CallClock).
  static constexpr uint64_t kCallUnitNs = 1024;
  // No call that could overwrite the entries has been made.
  static constexpr uint64_t kNotYet = ~uint64_t{0};

  void Open() {
    Zero(noted_calls_, noted_others_, settled_calls_, first_of_group_, first_of_group_ns_,
         announced_in_group_, latest_launch_, others_before_launch_, is_alone_, has_late_items_);
  }

  // A group begins with a call at that depth; by the thread that makes it. A group that begins on
  // another communicator is not shown to this one.
  void NoteGroup(int depth) { StoreRelaxed(is_alone_, depth == 1); }
  // A call that is not being captured; by the thread that makes it, before anything is handed to
  // the GPU.
  void NoteCall(uint64_t now_ns) {
    const uint64_t number = LoadRelaxed(noted_calls_);
    const bool begins_group = LoadRelaxed(is_alone_) || LoadRelaxed(settled_calls_) == number;
    StoreRelease(waiting_[number % kWaiting], now_ns << 1 | (begins_group ? 1 : 0));
    StoreRelaxed(is_alone_, false);
    StoreRelease(called_ns_[Noted() % kKept], now_ns);
    StoreRelease(noted_calls_, number + 1);
  }

  // The three kinds of operations, by the thread that announces them. Each returns the first item
  // that may be the operation's own. `launch` 0: not known.

  // One that knows its call. One more than there were calls is an item itself, for a call may
  // announce several.
  uint32_t NoteOperation(uint64_t call_ns, uint64_t launch) {
    Settle(call_ns);
    NoteLaunch(launch);
    const uint64_t first = LoadRelaxed(first_of_group_) + LoadRelaxed(others_before_launch_);
    if (call_ns + kCallUnitNs <=
        LoadRelaxed(first_of_group_ns_)) {  // out of order: nothing says what runs behind it
      Note(call_ns);
      return static_cast<uint32_t>(Noted()) - kKept - kRingEntries;
    }
    ExclusiveAdd(announced_in_group_, 1);
    if (LoadRelaxed(announced_in_group_) >
        LoadRelaxed(settled_calls_) - LoadRelaxed(first_of_group_))
      Note(call_ns);
    return static_cast<uint32_t>(first);
  }
  // One that knows none, for calls are not announced before 2.28: an item itself. Its kernel did
  // not start before.
  uint32_t NoteUncalled(uint64_t not_before_ns) {
    StoreRelaxed(has_late_items_, true);
    const uint64_t item = Noted();
    Note(not_before_ns);
    return static_cast<uint32_t>(item);
  }
  // A replay of a captured one, by the thread that the GPU waits for. The calls that are not
  // announced yet follow it.
  uint32_t NoteReplay(uint64_t now_ns, uint64_t launch) {
    NoteLaunch(launch);
    const uint64_t first = LoadRelaxed(settled_calls_) + LoadRelaxed(others_before_launch_);
    Note(now_ns);
    return static_cast<uint32_t>(first);
  }

  // One that could not be put in order, by any thread at any time: an item more. What the other
  // thread knows of groups and launches stays as it is.
  void NoteUnordered(uint64_t called_ns) { Note(called_ns); }

  // CLOCK_MONOTONIC: no kernel that overwrites the entries of an operation was called before;
  // kNotYet: none has been called; 0: not known. `first_item` as NoteOperation returned it.
  uint64_t OverwritableSince(uint32_t first_item) const {
    const uint32_t item = first_item + kRingEntries;
    const uint32_t slack = LoadRelaxed(has_late_items_) ? kUnannounced : 0;
    const int32_t behind = Behind(item);
    if (behind + static_cast<int32_t>(slack) <= 0) return kNotYet;
    if (behind <= 0) return 0;
    // Before it is seen whether it was still kept.
    const uint64_t called_ns = LoadAcquire(called_ns_[item % kKept]);
    return Behind(item) < static_cast<int32_t>(kKept) ? called_ns : 0;
  }

 private:
  // Number of items that have been noted from this one on.
  int32_t Behind(uint32_t item) const {
    return static_cast<int32_t>(static_cast<uint32_t>(Noted()) - item);
  }

  // The calls up to that time have been announced. In the same unit of time there may be later
  // ones, so that one of them is passed for each operation. (Calls that announce several operations
  // take longer than a unit.)
  void Settle(uint64_t call_ns) {
    const uint64_t noted = LoadAcquire(noted_calls_);
    uint64_t number = LoadRelaxed(settled_calls_);
    if (noted - number > kWaiting && LoadAcquire(waiting_[noted % kWaiting]) >> 1 <= call_ns)
      number = noted - kWaiting;
    for (uint32_t step = 0; step < kWaiting && number != noted; ++step) {
      const uint64_t waiting = LoadAcquire(waiting_[number % kWaiting]);
      if (waiting >> 1 >= call_ns + kCallUnitNs) break;
      if ((waiting & 1) != 0) BeginGroup(number, waiting >> 1);
      ++number;
      if (waiting >> 1 > call_ns) break;
    }
    StoreRelaxed(settled_calls_, number);
  }
  void BeginGroup(uint64_t number, uint64_t called_ns) {
    StoreRelaxed(first_of_group_, number);
    StoreRelaxed(first_of_group_ns_, called_ns);
    StoreRelaxed(announced_in_group_, 0);
    StoreRelaxed(others_before_launch_, LoadAcquire(noted_others_));
  }
  // Operations of one launch may run in another order than they are announced in.
  void NoteLaunch(uint64_t launch) {
    if (launch == 0 || launch == LoadRelaxed(latest_launch_)) return;
    StoreRelaxed(latest_launch_, launch);
    StoreRelaxed(others_before_launch_, LoadAcquire(noted_others_));
  }
  // The time is kept before the item counts (2 and 5).
  void Note(uint64_t ns) {
    StoreRelease(called_ns_[Noted() % kKept],
                 ns);  // after the count that lets go of what stood there
    noted_others_.fetch_add(1, std::memory_order_release);
  }
  // Two counts, so that a call, which one thread makes at a time, costs no locked instruction.
  uint64_t Noted() const { return LoadAcquire(noted_calls_) + LoadAcquire(noted_others_); }

  AtomicU64 noted_calls_{0};
  AtomicU64 noted_others_{0};
  AtomicU64 settled_calls_{0};   // calls that are announced, as far as it is known
  AtomicU64 first_of_group_{0};  // the call that began the latest announced group
  AtomicU64 first_of_group_ns_{0};
  AtomicU64 announced_in_group_{0};
  AtomicU64 latest_launch_{0};
  AtomicU64 others_before_launch_{0};
  std::atomic<bool> is_alone_{false};  // the next call is outside of all groups
  std::atomic<bool> has_late_items_{false};
  std::array<AtomicU64, kKept> called_ns_{};
  // Waiting calls by number: the time of the call << 1 | whether it begins a group.
  std::array<AtomicU64, kWaiting> waiting_{};
};

}  // namespace nccl_exporter::plugin
