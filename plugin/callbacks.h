// SPDX-License-Identifier: Apache-2.0
// Callbacks of NCCL once their arguments are in one form, from the group of calls to the stop of a
// channel. Any thread; none locks, allocates, logs or makes a system call.
//
// Those of every collective are inline, so that each is one function together with the entry in the
// table that NCCL calls; what is rare is called out of line. An event that is dropped is counted.
#pragma once

#include <cstdint>

#include "plugin/process.h"

namespace nccl_exporter::plugin {

static_assert(CallClock::kUnitNs == WorkItems::kCallUnitNs);
static_assert(Handle::kHasStepsFlag == uint64_t{1} << CallClock::kPayloadBits);

// Whether NCCL reports the network steps of the operations of a call. Of one that it has not
// announced it is not known: it does if the plugin takes them (NetworkTimer::Takes).
inline bool Process::HasSteps(Handle call) const {
  const HandleKind kind = communicators_.KindOf(call);
  return (kind != HandleKind::kCall && kind != HandleKind::kCapturedCall) || call.HasSteps();
}

inline void* Process::StartCallGroup(void* context, int depth) {
  const Handle from = Handle::From(context);
  Communicator* communicator = Find(from);
  if (communicator == nullptr) return nullptr;
  communicator->work_items().NoteGroup(depth);
  return from.With(HandleKind::kGroupApi, 0).Pointer();
}

inline void* Process::StartCall(void* context, Function function, bool is_captured) {
  const Handle from = Handle::From(context);
  Communicator* communicator = Find(from);
  if (communicator == nullptr) return nullptr;
  communicator->recorder().CountCall(function);
  communicator->NoteCall(is_captured);
  // NCCL has read the mask.
  NetworkTimer* const network = communicator->network();
  const bool has_steps = network != nullptr && network->windows().AsksForSteps();
  if (is_captured) {
    if (network != nullptr) network->windows().NoteCapture();
    StoreRelaxed(host_may_announce_, true);
    const uint64_t thread = capturing_threads_.Number();
    return Handle::Of(communicators_.Salt(), HandleKind::kCapturedCall, thread)
        .WithSteps(has_steps)
        .Pointer();
  }
  const uint64_t now_ns = NowNs();
  communicator->work_items().NoteCall(now_ns);
  return Handle::Of(communicators_.Salt(), HandleKind::kCall, call_clock_.PayloadOf(now_ns))
      .WithSteps(has_steps)
      .Pointer();
}

// Where calls are not announced (API v4 and before), it is not known whether one was captured.
template <bool kHasCallEvents>
inline void* Process::StartLaunch(void* context) {
  const Handle from = Handle::From(context);
  Communicator* communicator = Find(from);
  if (communicator == nullptr) return nullptr;
  if (communicator->MayBeOverridden()) CheckMask(*communicator);
  if (NetworkTimer* const network = communicator->network()) network->BeginLaunch();
  const bool is_alone = kHasCallEvents && !LoadRelaxed(host_may_announce_);
  const uint64_t ticket =
      communicator->FollowsOperations() ? communicator->OpenLaunch(is_alone) : 0;
  return from.With(ticket != 0 ? HandleKind::kGroup : HandleKind::kUnfollowed, ticket).Pointer();
}

inline bool Process::DateCall(Handle call, OperationStart* start) {
  const HandleKind kind = communicators_.KindOf(call);
  if (kind == HandleKind::kCall) {
    start->call_is_bound = call_clock_.TimeOf(call.CallPayload(), &start->call_ns);
    if (!start->call_is_bound) start->call_ns = NowNs();
    return true;
  }
  start->call_ns = NowNs();
  if (kind == HandleKind::kCapturedCall) {
    if (capturing_threads_.IsCurrent(call.CallPayload())) return false;
    start->call_is_bound = true;  // the kernel waits for this very callback
    start->is_replay = true;
  }
  return true;
}

// All kernel events of a symmetric plan are its first task's, which announces its channels; the
// other tasks announce none. A captured plan announces the same and has no kernel events at all
// (2.31.2 plugin/profiler.cc :598-604, profilerPostPlanWorkSym; scheduler/symmetric_sched.cc
// :293-296). A task whose call is not known may be a replay.
inline void Process::PlaceInSymmetricPlan(OperationStart& start, const Communicator& communicator) {
  if (!communicator.ReadsKernels()) return;
  start.is_untimed |= start.is_replay || !start.call_is_bound;
  if (start.channels != 0) return;
  start.is_carried = start.launch != 0;
  start.is_untimed |= !start.is_carried;
}

inline void* Process::StartTask(void* context, OperationStart& start, const TaskOrigin& origin,
                                uint64_t count, uint32_t element_bytes, void* call, void* launch) {
  const Handle from = Handle::From(context);
  Communicator* communicator = Find(from);
  if (communicator == nullptr) return nullptr;
  if (!DateCall(Handle::From(call), &start)) return from.With(HandleKind::kUnfollowed, 0).Pointer();
  if (origin.names_communicator && !communicator->HasIdentity())
    communicator->LearnIdentity(origin.communicator_id, origin.rank);
  const Handle group = Handle::From(launch);
  if (group.Slot() == from.Slot()) {
    const HandleKind kind = communicators_.KindOf(group);
    start.launch_is_followed = kind != HandleKind::kUnfollowed;
    if (kind == HandleKind::kGroup) start.launch = group.Ticket();
  }
  if (start.is_symmetric) PlaceInSymmetricPlan(start, *communicator);
  start.message_bytes = MessageBytes(start.function, count, element_bytes,
                                     communicators_.RanksOf(from, *communicator));
  start.is_to_self = start.peer >= 0 && start.peer == communicator->rank();
  start.has_no_parts = start.is_to_self && communicator->source() == TimingSource::kProxy;
  bool times_network = false;
  if (NetworkTimer* const network = communicator->network()) {
    times_network = network->Takes(start.call_is_bound && !start.is_replay);
    if (times_network && HasSteps(Handle::From(call)))
      communicator->recorder().CountNetworkTimed(start.function, start.message_bytes);
    network->windows().Note(start.call_ns);
  }
  const uint64_t ticket = communicator->StartOperation(start);
  return from.With(ticket != 0 ? HandleKind::kOperation : HandleKind::kUnfollowed, ticket)
      .WithNetworkFlag(times_network)
      .Pointer();
}

template <bool kHasTimeStamp>
[[gnu::always_inline]] inline abi::Result Process::StartKernelChannel(void** handle, void* task,
                                                                      uint32_t channel,
                                                                      uint64_t gpu_ns) {
  const Handle operation = Handle::From(task);
  Communicator* communicator = communicators_.Owner(operation, HandleKind::kOperation);
  if (communicator == nullptr || channel >= Handle::kMaxChannels)
    return RefuseChannel(operation, channel);
  if constexpr (!kHasTimeStamp) gpu_ns = NowNs();
  if (!communicator->AddChannel(operation.Ticket(), channel, gpu_ns))
    return BeginChannels(handle, *communicator, operation, channel, gpu_ns);
  *handle = operation.OfChannel(channel).Pointer();
  return abi::kSuccess;
}

[[gnu::always_inline]] inline void Process::StampKernelChannel(void* pointer, uint64_t gpu_ns) {
  const Handle handle = Handle::From(pointer);
  Communicator* communicator = communicators_.Owner(handle, HandleKind::kKernelChannel);
  if (communicator == nullptr) return CountLoss(Loss::kUnknownHandle);
  communicator->StampChannel(handle.Ticket(), handle.Channel(), gpu_ns);
}

[[gnu::always_inline]] inline void* Process::StartProxyStep(void* proxy_operation, int step) {
  const Handle handle = Handle::From(proxy_operation);
  if (handle.bits == 0) return nullptr;  // its operation was refused
  const HandleKind kind = communicators_.KindOf(handle);
  if (kind != HandleKind::kNetworkOperation && kind != HandleKind::kTimedProxyOperation) {
    if (kind != HandleKind::kProxyOperation) RefuseStep(handle);
    return nullptr;
  }
  NetworkTimer* const network = NetworkOf(handle);
  if (network == nullptr) return nullptr;
  const uint64_t number = network->StartStep(handle.NetworkBits(), static_cast<uint32_t>(step));
  if (number == NetworkTimer::kNone) return nullptr;
  return handle.WithNetworkBits(HandleKind::kNetworkStep, static_cast<uint32_t>(number)).Pointer();
}

[[gnu::always_inline]] inline void Process::RecordProxyStep(void* step, int state, uint64_t bytes) {
  const Handle handle = Handle::From(step);
  if (!communicators_.Fits(handle, HandleKind::kNetworkStep)) return RefuseStep(handle);
  if (NetworkTimer* const network = NetworkOf(handle))
    network->NoteStepState(handle.NetworkBits(), state, bytes);
}

template <bool kHasTimeStamp>
[[gnu::always_inline]] inline void Process::Stop(void* pointer) {
  const Handle handle = Handle::From(pointer);
  if (!communicators_.Fits(handle, HandleKind::kKernelChannel)) return StopOther(handle);
  Communicator* communicator = communicators_.OwnerOf(handle);
  if (communicator == nullptr) return CountLoss(Loss::kUnknownHandle);
  if constexpr (!kHasTimeStamp)
    communicator->StampChannel(handle.Ticket(), handle.Channel(), NowNs());
  communicator->StopChannel(handle.Ticket(), handle.Channel());
}

[[gnu::always_inline]] inline void Process::StopOther(Handle handle) {
  const HandleKind kind = communicators_.KindOf(handle);
  if (kind == HandleKind::kOperation || kind == HandleKind::kCall || kind == HandleKind::kGroupApi)
    return;  // "handed over", not "done"
  if (kind != HandleKind::kNetworkStep) return StopRare(handle);
  if (NetworkTimer* const network = NetworkOf(handle)) network->StopStep(handle.NetworkBits());
}

}  // namespace nccl_exporter::plugin
