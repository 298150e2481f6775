// SPDX-License-Identifier: Apache-2.0
// The callbacks of every collective, from the group of calls to the stop of a channel. Inline, so that each is one
// function together with the entry in the table that NCCL calls; everything that is rare is called out of line.
#pragma once

#include "plugin/process.h"

namespace nccl_exporter {

// The calling thread.

inline void* Process::StartCallGroup(void* context, int depth) {
  const Handle from = Handle::From(context);
  Communicator* communicator = Find(from);
  if (communicator == nullptr) return nullptr;
  const Handle group = from.With(HandleKind::kGroupApi, communicator->BeginCallGroup(depth));
  if (Sampler* sampler = communicator->call_groups().sampler()) sampler->NoteGroup(group.bits);
  return group.Pointer();
}

inline void* Process::StartCall(void* context, Function function, bool is_captured, void* call_group) {
  const Handle from = Handle::From(context);
  Communicator* communicator = Find(from);
  if (communicator == nullptr) return nullptr;
  communicator->recorder().CountCall(function);
  Sampler* sampler = communicator->call_groups().sampler();
  if (sampler != nullptr && (is_captured || TraitsOf(function).is_point_to_point) && !sampler->IsFrozen()) {
    FreezeMask(*sampler,
               is_captured                   ? FreezingCall::kOther
               : function == Function::kSend ? FreezingCall::kSend
                                             : FreezingCall::kRecv,
               context, call_group);
  }
  communicator->NoteCall(is_captured);
  if (is_captured) return Handle::Of(Salt(), HandleKind::kCapturedCall, capturing_threads_.Number()).Pointer();
  const uint64_t now_ns = NowNs();
  communicator->NoteWorkItem(now_ns);
  HandleKind kind = HandleKind::kCall;
  if (sampler != nullptr) {
    communicator->call_groups().NoteCallTime(now_ns);
    if (!sampler->TimesNow()) kind = HandleKind::kUntimedCall;
  }
  const uint64_t units = (now_ns - start_ns_) >> kCallTimeShift;
  if (LoadRelaxed(call_half_) != units >> kCallHalfShift) StoreRelaxed(call_half_, units >> kCallHalfShift);
  return Handle::Of(Salt(), kind, units).Pointer();
}

inline void* Process::StartLaunch(void* context) {
  const Handle from = Handle::From(context);
  Communicator* communicator = Find(from);
  if (communicator == nullptr) return nullptr;
  if (const int* mask = watched_masks_[from.Slot()].Overridden()) NoteMaskOverride(mask);
  const uint64_t ticket = communicator->FollowsOperations() ? communicator->OpenLaunch() : 0;
  return from.With(ticket != 0 ? HandleKind::kGroup : HandleKind::kUnfollowed, ticket).Pointer();
}

// The call lies in the half of the latest call, or in the one before: it is at most 104 days old.
inline bool Process::TimeOfCall(uint64_t payload, uint64_t* call_ns) const {
  static_assert(WorkItems::kCallUnitNs == uint64_t{1} << kCallTimeShift);
  const uint64_t latest_half = LoadRelaxed(call_half_);
  const bool is_former = ((latest_half ^ payload >> kCallHalfShift) & 1) != 0;
  if (is_former && latest_half == 0) return false;
  const uint64_t half = latest_half - (is_former ? 1 : 0);
  const uint64_t units = half << kCallHalfShift | (payload & ((uint64_t{1} << kCallHalfShift) - 1));
  *call_ns = start_ns_ + (units << kCallTimeShift);
  return true;
}

inline bool Process::DateCall(Handle call, OperationStart* start) {
  const HandleKind kind = KindOf(call);
  if (kind == HandleKind::kCall || kind == HandleKind::kUntimedCall) {
    start->is_untimed = kind == HandleKind::kUntimedCall;
    start->call_is_bound = TimeOfCall(call.Payload(), &start->call_ns);
    if (!start->call_is_bound) start->call_ns = NowNs();
    return true;
  }
  start->call_ns = NowNs();
  if (kind == HandleKind::kCapturedCall) {
    if (capturing_threads_.IsCurrent(call.Payload())) return false;
    start->call_is_bound = true;  // the kernel waits for this very callback
    start->is_replay = true;
  }
  return true;
}

// All kernel events of a symmetric plan are its first task's, which announces its channels; the other tasks announce
// none. A captured plan announces the same and has no kernel events at all (2.31.2 plugin/profiler.cc :598-604,
// profilerPostPlanWorkSym; scheduler/symmetric_sched.cc :293-296). A task whose call is not known may be a replay.
inline void Process::PlaceInSymmetricPlan(OperationStart& start, const Communicator& communicator) {
  if (!communicator.ReadsKernels()) return;
  start.is_untimed |= start.is_replay || !start.call_is_bound;
  if (start.channels != 0) return;
  start.is_carried = start.launch != 0;
  start.is_untimed |= !start.is_carried;
}

inline void* Process::StartTask(void* context, OperationStart& start, const TaskOrigin& origin, uint64_t count,
                                uint32_t element_bytes, void* call, void* launch) {
  const Handle from = Handle::From(context);
  Communicator* communicator = Find(from);
  if (communicator == nullptr) return nullptr;
  if (!DateCall(Handle::From(call), &start)) return from.With(HandleKind::kUnfollowed, 0).Pointer();
  if (origin.tells_identity && LoadRelaxed(learned_[from.Slot()]) == 0) LearnIdentity(from.Slot(), origin);

  if (start.is_replay) {
    const Sampler* sampler = communicator->call_groups().sampler();
    start.is_untimed = sampler != nullptr && !sampler->TimesNow();  // frozen since the capture
  }
  const Handle group = Handle::From(launch);
  if (group.Slot() == from.Slot()) {
    const HandleKind kind = KindOf(group);
    start.launch_is_followed = kind != HandleKind::kUnfollowed;
    if (kind == HandleKind::kGroup) start.launch = group.Ticket();
  }
  if (start.is_symmetric) PlaceInSymmetricPlan(start, *communicator);
  start.message_bytes = MessageBytes(start.function, count, element_bytes, RanksOf(from, *communicator));
  start.is_to_self = start.peer >= 0 && start.peer == communicator->rank();
  start.has_no_parts = start.is_to_self && communicator->source() == TimingSource::kProxy;
  const uint64_t ticket = communicator->StartOperation(start);
  return from.With(ticket != 0 ? HandleKind::kOperation : HandleKind::kUnfollowed, ticket).Pointer();
}

// The progress thread.

template <bool kHasTimeStamp>
[[gnu::always_inline]] inline void* Process::StartKernelChannel(void* task, uint32_t channel, uint64_t gpu_ns) {
  const Handle handle = Handle::From(task);
  Communicator* communicator = Owner(handle, HandleKind::kOperation);
  if (communicator == nullptr || channel >= Handle::kMaxChannels) return RefuseChannel(handle, channel);
  if (communicator->source() == TimingSource::kProxy) return nullptr;  // the mask was changed by someone else
  if constexpr (!kHasTimeStamp) gpu_ns = NowNs();
  if (!communicator->parts().StartChannel(handle.Ticket(), channel, gpu_ns)) return nullptr;
  return Handle{handle.As(HandleKind::kKernelChannel).bits | channel}.Pointer();
}

[[gnu::always_inline]] inline void Process::StampKernelChannel(void* pointer, uint64_t gpu_ns) {
  const Handle handle = Handle::From(pointer);
  Communicator* communicator = Owner(handle, HandleKind::kKernelChannel);
  if (communicator == nullptr) return CountLoss(Loss::kUnknownHandle);
  communicator->parts().StampChannel(handle.Ticket(), handle.Channel(), gpu_ns);
}

template <bool kHasTimeStamp>
[[gnu::always_inline]] inline void Process::Stop(void* pointer) {
  const Handle handle = Handle::From(pointer);
  const HandleKind kind = KindOf(handle);
  if (kind == HandleKind::kOperation || kind == HandleKind::kCall) return;  // "handed over", not "done"
  if (kind != HandleKind::kKernelChannel) return StopOther(handle);
  Communicator* communicator = OwnerOf(handle);
  if (communicator == nullptr) return CountLoss(Loss::kUnknownHandle);
  if constexpr (!kHasTimeStamp) communicator->parts().StampChannel(handle.Ticket(), handle.Channel(), NowNs());
  communicator->parts().StopChannel(handle.Ticket(), handle.Channel());
}

}  // namespace nccl_exporter
