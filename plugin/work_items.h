// SPDX-License-Identifier: Apache-2.0
// How many work items a communicator was called for, and when: what could have overwritten NCCL's ring of time stamps.
// The threads that call NCCL note items; the thread that judges time stamps reads them.
//
// Each channel has a ring of 64 time stamps. A work item takes the place of the one 64 items before it. An API call is
// at most one item on each channel, so calls are counted: operations alone would miss the plain Broadcasts of NCCL 2.29
// and later, which take items and announce no operation, and operations that are not followed. A Send and the Receive
// that NCCL pairs with it share an item and count as two. Too high a count costs time stamps that could be believed;
// too low a count would let wrong ones pass.
//
// NCCL may run the calls of one group in another order than they were made in. So the items that may follow an
// operation are counted from the first call of its group. A group is over when its operations are announced. One of
// Broadcasts alone announces none: it is over when the next begins. But NCCL may show a group that has groups in it as
// several, so kNestedGroups that begin are counted as one.
#pragma once

#include <array>
#include <cstdint>

#include "plugin/word.h"

namespace nccl_exporter {

class WorkItems {
 public:
  // Entries of NCCL's ring for each channel.
  static constexpr uint32_t kRingEntries = 64;
  // Calls whose time is kept: a followed host is at most 512 operations ahead, and as many Broadcasts may lie between.
  static constexpr uint32_t kKept = 1024;
  // Where calls are not announced (2.27 and before) a kernel may run before its operations are known: room for a group
  // of that many.
  static constexpr uint32_t kUnannounced = 16;
  static constexpr uint32_t kNestedGroups = 8;
  // No call that could overwrite the entries has been made.
  static constexpr uint64_t kNotYet = ~uint64_t{0};

  void Open() {
    StoreRelaxed(noted_calls_, 0);
    StoreRelaxed(noted_others_, 0);
    StoreRelaxed(first_of_group_, 0);
    StoreRelaxed(announced_in_group_, 0);
    StoreRelaxed(latest_launch_, 0);
    StoreRelaxed(groups_, 0);
    for (Word& first : firsts_) StoreRelaxed(first, 0);
    has_late_items_.store(false, std::memory_order_relaxed);
  }

  // A group of calls begins; by the thread that makes them.
  void NoteGroup() {
    StoreRelaxed(firsts_[LoadRelaxed(groups_) % kNestedGroups], Noted());
    AddAlone(groups_, 1);
  }
  // A call that is not being captured; by the thread that makes it, before anything is handed to the GPU.
  void NoteCall(uint64_t now_ns) {
    if (LoadRelaxed(announced_in_group_) != 0) {
      StoreRelaxed(announced_in_group_, 0);
      StoreRelaxed(first_of_group_, Noted());
    }
    StoreRelease(called_ns_[Noted() % kKept], now_ns);
    StoreRelease(noted_calls_, LoadRelaxed(noted_calls_) + 1);
  }

  // An operation, by the thread that announces it. Returns the first item that may be its own. `not_before_ns`: its
  // kernel did not start before. An operation without a call of its own (a call may announce several, and calls are
  // not announced before 2.28) is an item itself.
  // `launch` 0: not known. Operations without a call of their own, in launches of their own, are groups of their own.
  uint32_t NoteOperation(bool was_called, uint64_t not_before_ns, uint64_t launch) {
    if (!was_called) {
      has_late_items_.store(true, std::memory_order_relaxed);
      return NoteAlone(not_before_ns);
    }
    const bool has_call = LoadRelaxed(announced_in_group_) < Noted() - LoadRelaxed(first_of_group_);
    const bool is_in_latest_launch = launch != 0 && launch == LoadRelaxed(latest_launch_);
    if (!has_call && !is_in_latest_launch) {
      StoreRelaxed(first_of_group_, Noted());
      StoreRelaxed(announced_in_group_, 0);
    }
    AddAlone(announced_in_group_, 1);
    StoreRelaxed(latest_launch_, launch);
    const uint64_t first = LoadRelaxed(first_of_group_);
    if (!has_call) Note(not_before_ns);
    const uint64_t first_nested = LoadRelaxed(firsts_[LoadRelaxed(groups_) % kNestedGroups]);
    return static_cast<uint32_t>(first_nested > first ? first_nested : first);
  }
  // The replay of a captured operation, by the thread that the GPU waits for.
  uint32_t NoteReplay(uint64_t now_ns) { return NoteAlone(now_ns); }

  // CLOCK_MONOTONIC: no kernel that overwrites the entries of an operation was called before; kNotYet: none has been
  // called; 0: not known. `first_item` as NoteOperation returned it.
  uint64_t OverwritableSince(uint32_t first_item) const {
    const uint32_t item = first_item + kRingEntries;
    const uint32_t slack = has_late_items_.load(std::memory_order_relaxed) ? kUnannounced : 0;
    const int32_t behind = Behind(item);
    if (behind + static_cast<int32_t>(slack) <= 0) return kNotYet;
    if (behind <= 0) return 0;
    const uint64_t called_ns = LoadAcquire(called_ns_[item % kKept]);  // before it is seen whether it was still kept
    return Behind(item) < static_cast<int32_t>(kKept) ? called_ns : 0;
  }

 private:
  // How many items have been noted from this one on.
  int32_t Behind(uint32_t item) const { return static_cast<int32_t>(static_cast<uint32_t>(Noted()) - item); }

  uint32_t NoteAlone(uint64_t ns) {
    const uint64_t item = Noted();
    Note(ns);
    return static_cast<uint32_t>(item);
  }
  // The time is kept before the item counts, so that a time that is read is the item's own or, when a call and a
  // replay are noted at one moment, an older one: that makes less believable, not more.
  void Note(uint64_t ns) {
    StoreRelease(called_ns_[Noted() % kKept], ns);  // after the count that lets go of what stood there
    noted_others_.fetch_add(1, std::memory_order_release);
  }
  // Two counts, so that a call, which one thread makes at a time, costs no locked instruction.
  uint64_t Noted() const { return LoadAcquire(noted_calls_) + LoadAcquire(noted_others_); }

  Word noted_calls_{0};
  Word noted_others_{0};
  Word first_of_group_{0};
  Word announced_in_group_{0};
  Word latest_launch_{0};
  Word groups_{0};
  std::array<Word, kNestedGroups> firsts_{};  // items; of the latest groups
  std::atomic<bool> has_late_items_{false};
  std::array<Word, kKept> called_ns_{};
};

}  // namespace nccl_exporter
