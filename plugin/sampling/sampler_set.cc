// SPDX-License-Identifier: Apache-2.0
#include "plugin/sampling/sampler_set.h"

#include "plugin/segment/atomics.h"

namespace nccl_exporter::plugin {
namespace {

// Orders a store before a later load. ThreadSanitizer knows no fences: it sees the atomics, which
// have no race, but not their order.
void FullFence() {
#if !defined(NCCL_EXPORTER_TSAN)
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

// Kernels are timed no more; proxies follow what crosses the network. A communicator that drifts
// says so instead.
void ShowUntimed(layout::CommunicatorSlot& slot) {
  uint64_t source = static_cast<uint64_t>(TimingSource::kKernel);
  const std::atomic_ref<uint64_t> shown(slot.timing_source);
  if (!shown.compare_exchange_strong(source, static_cast<uint64_t>(TimingSource::kProxy))) return;
  std::atomic_ref<uint64_t>(slot.timing_reason)
      .store(static_cast<uint64_t>(TimingReason::kSamplingFrozen), std::memory_order_release);
}

}  // namespace

// Init and finalize.

Sampler* SamplerSet::Join(int* mask, int timed_mask, bool may_change_mask, SamplingReason* reason) {
  const auto refuse = [&](SamplingReason why) -> Sampler* {
    if (*reason == SamplingReason::kDefault) *reason = why;
    return nullptr;
  };
  for (Library& library : libraries_) {
    if (!library.sampler.Serves(mask)) continue;
    library.sampler.KeepMask();
    ++library.communicators;  // for good, if it has no slot: its end is not noted
    return &library.sampler;
  }
  if (!settings_.is_wanted) return refuse(SamplingReason::kConfigured);
  if (!may_change_mask) return refuse(SamplingReason::kRelease);
  if (has_overflowed_) return refuse(SamplingReason::kOverflow);
  for (Library& library : libraries_) {
    if (library.sampler.IsInUse()) continue;
    library.sampler.Open(mask, timed_mask, settings_.windows, settings_.learning_ns, NowNs());
    library.reason.store(SamplingReason::kDefault, std::memory_order_relaxed);
    library.communicators = 1;
    return &library.sampler;
  }
  return refuse(SamplingReason::kTooManyLibraries);
}

void SamplerSet::Add(CallGroups& groups, layout::CommunicatorSlot* slot, Sampler* sampler,
                     SamplingReason reason) {
  if (groups.slot_ == nullptr) {
    groups.slot_ = slot;
    groups.next_ = first_.load(std::memory_order_relaxed);
    first_.store(&groups, std::memory_order_release);
  }
  groups.Open(sampler);
  FullFence();
  if (sampler != nullptr) return Show(groups, *LibraryOf(sampler));
  StoreRelaxed(slot->sampling, layout::SamplingWord(SamplingState::kNone, reason, 0));
}

// The next communicator of that copy of libnccl gets a new sampler, so that the former ones do not
// bind the mask.
void SamplerSet::Leave(CallGroups& groups) {
  groups.is_live_.store(false, std::memory_order_relaxed);
  Library* library = LibraryOf(groups.sampler());
  if (library != nullptr && --library->communicators == 0) library->sampler.Close();
}

void SamplerSet::NoteOverflow() {
  has_overflowed_ = true;
  for (Library& library : libraries_) FreezeAsItStands(library, SamplingReason::kOverflow);
}

SamplerSet::Library* SamplerSet::LibraryOf(const Sampler* sampler) {
  for (Library& library : libraries_) {
    if (&library.sampler == sampler) return &library;
  }
  return nullptr;
}

// What is shown.

void SamplerSet::Show(const CallGroups& groups, const Library& library) {
  const auto word = [&library] {
    return layout::SamplingWord(library.sampler.state(),
                                library.reason.load(std::memory_order_relaxed),
                                library.sampler.DutyPpm());
  };
  uint64_t shown = 0;
  do {
    shown = word();
    StoreRelaxed(groups.slot_->sampling, shown);
    FullFence();
  } while (shown != word());  // the state moves on twice at most
  if (library.sampler.IsFrozen() && !library.sampler.TimesNow()) ShowUntimed(*groups.slot_);
}

// The state has changed: once or twice in the life of a process.
void SamplerSet::ShowAll(const Library& library) const {
  FullFence();
  for (const CallGroups* groups = first_.load(std::memory_order_acquire); groups != nullptr;
       groups = groups->next_) {
    if (groups->AreSampledBy(library.sampler)) Show(*groups, library);
  }
}

// Freezing.

void SamplerSet::Freeze(Sampler& sampler, FreezingCall call, uint64_t changes_before) {
  if (!sampler.Freeze(call, changes_before)) return;
  Library& library = *LibraryOf(&sampler);
  library.reason.store(
      call == FreezingCall::kOther ? SamplingReason::kGraph : SamplingReason::kPointToPoint,
      std::memory_order_relaxed);
  ShowAll(library);
}

void SamplerSet::FreezeAsItStands(Library& library, SamplingReason reason) {
  // One that is frozen is not looked at again: its copy of libnccl may have been unloaded.
  if (!library.sampler.IsInUse() ||
      library.reason.load(std::memory_order_relaxed) != SamplingReason::kDefault)
    return;
  library.sampler.Freeze(FreezingCall::kOther, 0);
  library.reason.store(reason, std::memory_order_relaxed);
  ShowAll(library);
}

// Changes of the mask.

void SamplerSet::EndGroup(CallGroups& groups, Sampler& sampler, uint64_t number, uint64_t handle) {
  const bool is_due = groups.End(sampler, number);
  if (!sampler.IsLatestGroup(handle))
    return FreezeAsItStands(*LibraryOf(&sampler), SamplingReason::kThreads);
  if (is_due) ChangeMask(groups, sampler);
}

bool SamplerSet::IsAnyGroupOpen(const Sampler& sampler) const {
  for (const CallGroups* groups = first_.load(std::memory_order_acquire); groups != nullptr;
       groups = groups->next_) {
    if (groups->AreSampledBy(sampler) && groups->IsAnyOpen()) return true;
  }
  return false;
}

void SamplerSet::ChangeMask(CallGroups& groups, Sampler& sampler) {
  if (!sampler.BeginChange()) return;
  const bool has_learned =
      sampler.EndChange(IsAnyGroupOpen(sampler), {NowNs(), ReadClock(CLOCK_REALTIME)});
  groups.NoteChanges(sampler);  // made by the thread itself: its next call loads no older mask
  if (has_learned) ShowAll(*LibraryOf(&sampler));
}

}  // namespace nccl_exporter::plugin
