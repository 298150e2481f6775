// SPDX-License-Identifier: Apache-2.0
// Samplers of a process, one for each copy of libnccl: which communicators are sampled, when their
// mask is frozen, and what of it is shown in their slots. Without this class every communicator is
// timed at all times.
//
// The list of communicators is lock-free:
//   1. A communicator is added once, under the process's lock, and never removed; its memory is
//      never given back.
//   2. Add() writes slot_ and next_ of the entry and stores it in first_ with release. Neither
//      changes after that.
//   3. Another thread loads first_ with acquire, so it sees 2 for this entry. It sees 2 for every
//      entry behind it, since the thread of 2 had those before it under the lock.
//   4. The list has no circle, so a walk ends after as many steps as there are communicators.
//
// A slot shows the latest state in the end, whatever threads show states at the same time:
//   1. A thread that changes the state has a full fence between the change and its walk (ShowAll).
//      A thread that adds a communicator has one between the entry and its look at the state. So
//      one of the two sees the other: the walk the entry, or Add() the state.
//   2. A thread that shows a state has a full fence between its store and a second look (Show). If
//      it stores an older state over a newer one, the newer one was stored after its change and
//      the fence of 1. So the second look sees the change, and the thread shows again.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "plugin/sampling/call_groups.h"
#include "plugin/sampling/sampler.h"
#include "proto/shm_layout.h"
#include "proto/timing_source.h"

namespace nccl_exporter::plugin {

// All zeros is its first state, as in a forked child.
class SamplerSet {
 public:
  struct Settings {
    bool is_wanted = false;
    SamplingWindows windows;
    uint64_t learning_ns = 0;
  };

  // Under the process's lock, like all that init and finalize do.

  void Open(const Settings& settings) { settings_ = settings; }
  // One more communicator of the copy of libnccl that `mask` belongs to: returns the copy's
  // sampler, or nullptr where there is none. *reason is then set, unless it is set already.
  Sampler* Join(int* mask, int timed_mask, bool may_change_mask, SamplingReason* reason);
  // The communicator that has joined, or has no sampler for that reason: shows it in its slot from
  // here on.
  void Add(CallGroups& groups, layout::CommunicatorSlot* slot, Sampler* sampler,
           SamplingReason reason);
  // The communicator is finalized. The last one of a copy of libnccl takes the sampler along: the
  // copy may be unloaded.
  void Leave(CallGroups& groups);
  // A communicator has no slot: it is not known whether its groups are open, so every mask stays as
  // it is.
  void NoteOverflow();

  // Any thread.

  // Collectives are timed until then (CLOCK_REALTIME), where the mask may change: see Sampler.
  void KeepOpen(uint64_t until_realtime_ns) {
    for (Library& library : libraries_) {
      if (library.sampler.IsInUse()) library.sampler.KeepOpen(until_realtime_ns);
    }
  }
  // A call is made that must not see a change of the mask. `changes_before` was noted at a moment
  // before the call.
  [[gnu::cold]] void Freeze(Sampler& sampler, FreezingCall call, uint64_t changes_before);
  // A group with a sampler ends: the mask may change. `handle` is the group's, as NoteGroup() had
  // it.
  void EndGroup(CallGroups& groups, Sampler& sampler, uint64_t number, uint64_t handle);

 private:
  // A framework's own copy of libnccl, and the system's, twice.
  static constexpr size_t kMostLibraries = 4;

  struct Library {  // a copy of libnccl
    Sampler sampler;
    std::atomic<SamplingReason> reason;
    uint32_t communicators;  // that are not finalized; under the lock
  };
  Library* LibraryOf(const Sampler* sampler);
  void FreezeAsItStands(Library& library, SamplingReason reason);
  void ChangeMask(CallGroups& groups, Sampler& sampler);
  bool IsAnyGroupOpen(const Sampler& sampler) const;
  static void Show(const CallGroups& groups, const Library& library);
  void ShowAll(const Library& library) const;

  Settings settings_;
  bool has_overflowed_;
  std::array<Library, kMostLibraries> libraries_;
  std::atomic<CallGroups*> first_;
};

}  // namespace nccl_exporter::plugin
