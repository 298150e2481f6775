// SPDX-License-Identifier: Apache-2.0
// How the process keeps its samplers: one for each copy of libnccl, known by its mask word.
#include "plugin/process.h"

namespace nccl_exporter {
Process::LibrarySampling* Process::SampleLibrary(int* mask, const Decision& decision, SamplingReason* reason) {
  const EventPolicy& policy = decision.policy;
  const auto refuse = [&](SamplingReason why) -> LibrarySampling* {
    if (*reason == SamplingReason::kDefault) *reason = why;
    return nullptr;
  };
  for (LibrarySampling& library : libraries_) {
    if (!library.sampler.Serves(mask)) continue;
    library.sampler.KeepMask();
    ++library.communicators;  // for good, if it has no slot: its end is not noted
    return &library;
  }
  if (options_.sampling == Sampling::kAlways) return refuse(SamplingReason::kConfigured);
  if (!policy.may_change_mask) return refuse(SamplingReason::kRelease);
  if (has_overflowed_) return refuse(SamplingReason::kOverflow);
  for (LibrarySampling& library : libraries_) {
    if (library.sampler.IsInUse()) continue;
    const uint64_t period_ns = options_.sampling_period_ns;
    const SamplingWindows windows{.period_ns = period_ns,
                                  .window_ns = period_ns / kWholeDutyPpm * options_.sampling_duty_ppm};
    library.sampler.Open(mask, policy.mask, windows, options_.sampling_learning_ns, NowNs());
    library.reason.store(SamplingReason::kDefault, std::memory_order_relaxed);
    library.communicators = 1;
    return &library;
  }
  return refuse(SamplingReason::kTooManyLibraries);
}

// Its communicators begin to count anew with the next one, so that nothing of the former ones binds the mask.
void Process::LeaveLibrary(Communicator& communicator) {
  LibrarySampling* library = LibraryOf(communicator.call_groups().sampler());
  if (library == nullptr) return;
  if (--library->communicators == 0) library->sampler.Close();
}

Process::LibrarySampling* Process::LibraryOf(const Sampler* sampler) {
  for (LibrarySampling& library : libraries_) {
    if (&library.sampler == sampler) return &library;
  }
  return nullptr;
}

void Process::ShowSampling(uint32_t slot, const LibrarySampling* library, SamplingReason reason) {
  layout::Word& shown = segment_.slot(slot)->sampling;
  if (library == nullptr) return StoreRelaxed(shown, layout::SamplingWord(SamplingState::kNone, reason, 0));
  const auto word = [library] {
    return layout::SamplingWord(library->sampler.state(), library->reason.load(std::memory_order_relaxed),
                                library->sampler.DutyPpm());
  };
  uint64_t now_shown = 0;
  do {
    now_shown = word();
    StoreRelaxed(shown, now_shown);
  } while (now_shown != word());  // the state moves on twice at most; the last store shows the last state
  if (library->sampler.IsFrozen() && !library->sampler.TimesNow()) ShowUntimed(slot);
}

// Kernels are timed no more; proxies follow what crosses the network. A communicator that drifts says so instead.
void Process::ShowUntimed(uint32_t slot) {
  layout::CommunicatorSlot* shown = segment_.slot(slot);
  uint64_t source = static_cast<uint64_t>(TimingSource::kKernel);
  const std::atomic_ref<uint64_t> source_word(shown->timing_source);
  if (!source_word.compare_exchange_strong(source, static_cast<uint64_t>(TimingSource::kProxy))) return;
  std::atomic_ref<uint64_t>(shown->timing_reason)
      .store(static_cast<uint64_t>(TimingReason::kSamplingFrozen), std::memory_order_release);
}

// The state has changed: once or twice in the life of a process.
void Process::ShowSampling(LibrarySampling& library) {
  for (uint32_t slot = 0; slot + 1 < slot_count_; ++slot) {
    const Communicator* communicator = communicators_[slot].load(std::memory_order_acquire);
    if (communicator == nullptr || communicator->call_groups().sampler() != &library.sampler) continue;
    if (LoadRelaxed(contexts_[slot]) != 0) ShowSampling(slot, &library, SamplingReason::kDefault);
  }
}

void Process::FreezeMask(Sampler& sampler, FreezingCall call, void* context, void* call_group) {
  const Handle group = Handle::From(call_group);
  const bool is_in_group = IsOurs(group) && group.Kind() == HandleKind::kGroupApi;
  const uint32_t slot = (is_in_group ? group : Handle::From(context)).Slot();
  const Communicator* first = communicators_[slot].load(std::memory_order_acquire);
  constexpr uint64_t kUnknown = 1;
  if (!sampler.Freeze(call, first != nullptr ? first->call_groups().changes_at_end() : kUnknown)) return;
  LibrarySampling& library = *LibraryOf(&sampler);
  library.reason.store(call == FreezingCall::kOther ? SamplingReason::kGraph : SamplingReason::kPointToPoint,
                       std::memory_order_relaxed);
  ShowSampling(library);
}

// As it stands.
void Process::FreezeMask(LibrarySampling& library, SamplingReason reason) {
  // One that is frozen is not looked at again: its copy of libnccl may have been unloaded.
  if (!library.sampler.IsInUse() || library.reason.load(std::memory_order_relaxed) != SamplingReason::kDefault) return;
  library.sampler.Freeze(FreezingCall::kOther, 0);
  library.reason.store(reason, std::memory_order_relaxed);
  ShowSampling(library);
}

// With a sampler.
void Process::EndCallGroup(Handle call_group, Communicator& communicator) {
  Sampler& sampler = *communicator.call_groups().sampler();
  const bool is_due = communicator.call_groups().End(sampler, call_group.Ticket());
  if (!sampler.IsLatestGroup(call_group.bits)) return FreezeMask(*LibraryOf(&sampler), SamplingReason::kThreads);
  if (is_due) ChangeMask(communicator, sampler);
}

bool Process::IsAnyCallGroupOpen(const Sampler& sampler) const {
  for (uint32_t slot = 0; slot + 1 < slot_count_; ++slot) {
    const Communicator* communicator = communicators_[slot].load(std::memory_order_acquire);
    if (communicator == nullptr || communicator->call_groups().sampler() != &sampler) continue;
    if (LoadRelaxed(contexts_[slot]) != 0 && communicator->call_groups().IsAnyOpen()) return true;
  }
  return false;
}

void Process::ChangeMask(Communicator& communicator, Sampler& sampler) {
  if (!sampler.BeginChange()) return;
  const bool is_any_group_open = IsAnyCallGroupOpen(sampler);
  const bool has_learned = sampler.EndChange(is_any_group_open, {NowNs(), ReadClock(CLOCK_REALTIME)});
  communicator.call_groups().NoteChanges(sampler);  // made by the thread itself: its next call loads no older mask
  if (has_learned) ShowSampling(*LibraryOf(&sampler));
}

}  // namespace nccl_exporter
