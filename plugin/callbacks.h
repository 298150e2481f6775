// SPDX-License-Identifier: Apache-2.0
// Callbacks of NCCL once their arguments are in one form, from the group of calls to the stop of a
// channel. Any thread; none locks, allocates, logs or makes a system call.
//
// Those of every collective are inline, so that each is one function together with the entry in the
// table that NCCL calls; what is rare is called out of line. Nothing in here returns an error to
// NCCL: an event that is dropped is counted, and has nullptr for its handle.
#pragma once

#include <cstdint>

#include "plugin/nccl/operation_start.h"
#include "plugin/operations/handle.h"
#include "plugin/process.h"

namespace nccl_exporter::plugin {

static_assert(CallClock::kUnitNs == WorkItems::kCallUnitNs);
static_assert(Handle::kHasStepsFlag == uint64_t{1} << CallClock::kPayloadBits);

// The fields of a start event by which the first operation names its communicator (API v1 to v3).
struct TaskOrigin {
  bool names_communicator = false;
  uint64_t communicator_id = 0;
  int rank = 0;
};

// Made for one callback.
class Callbacks {
 public:
  explicit Callbacks(Process& process)
      : process_(process), communicators_(process.communicators()) {}

  // Each start returns the handle for NCCL, or nullptr when the event is dropped.
  void* StartCallGroup(void* context, int depth);
  void* StartCall(void* context, Function function, bool is_captured);
  template <bool kHasCallEvents>
  void* StartLaunch(void* context);
  void* StartTask(void* context, OperationStart& start, const TaskOrigin& origin, uint64_t count,
                  uint32_t element_bytes, void* call, void* launch);
  void* StartCopyEngineTask(void* context, Function function, uint64_t count,
                            uint32_t element_bytes, void* call);
  // With a GPU time (API v4 and later), or dated here.
  template <bool kHasTimeStamp>
  void* StartKernelChannel(void* task, uint32_t channel, uint64_t gpu_ns);
  // `channel` and `step_bytes` are for traces. In registers: an address would cost all callbacks.
  struct ProxyOperationStart {
    int pid = 0;
    int peer = 0;
    int step_bytes = 0;
    uint8_t channel = 0;
    bool is_send = false;
  };
  void* StartProxyOperation(void* task, ProxyOperationStart start);
  void* StartProxyStep(void* proxy_operation, int step);
  void RecordProxyStep(void* step, int state, uint64_t bytes);
  // API v2 and v3.
  void RecordProxyOperation(void* proxy_operation, int state, uint64_t sum_of_bytes, int steps);

  template <bool kHasTimeStamp>
  void Stop(void* handle);
  void StampKernelChannel(void* handle, uint64_t gpu_ns);

 private:
  // Static: an address of this object would keep it in memory for all stamps.
  [[gnu::noinline]] static void StampTracedChannel(Process& process, Handle handle,
                                                   uint64_t time_ns);
  // By values: a reference to what a start is made of would keep it in memory for all operations.
  [[gnu::noinline]] static void TraceOperation(Communicator& communicator, uint64_t ticket,
                                               Function function, int peer, uint64_t sequence,
                                               uint64_t call_ns, uint64_t bytes);
  // The communicator that a handle of one of the two kinds of channels belongs to, or nullptr.
  Communicator* OwnerOfChannel(Handle handle) const {
    const HandleKind kind = communicators_.KindOf(handle);
    const bool is_channel =
        kind == HandleKind::kKernelChannel || kind == HandleKind::kTracedKernelChannel;
    return is_channel ? communicators_.OwnerOf(handle) : nullptr;
  }
  // The communicator that a context names; nullptr is counted.
  Communicator* Find(Handle context) {
    Communicator* communicator = communicators_.Find(context);
    if (communicator == nullptr) process_.CountLoss(Loss::kUnknownContext);
    return communicator;
  }
  static void PlaceInSymmetricPlan(OperationStart& start, const Communicator& communicator);
  // Fills in when the call was made. False if the call is being captured at this moment: nothing is
  // handed to the GPU.
  bool DateCall(Handle call, OperationStart* start);
  // Whether NCCL reports the network steps of the operations of a call. Of one that it has not
  // announced it is not known: it does if the plugin takes them (NetworkTimer::Takes).
  bool HasSteps(Handle call) const {
    switch (communicators_.KindOf(call)) {
      case HandleKind::kCall:
      case HandleKind::kCapturedCall:
        return call.HasSteps();
      default:
        return true;
    }
  }
  void* RefuseChannel(Handle task, uint32_t channel);
  [[gnu::cold, gnu::noinline]] void RefuseStep(Handle handle);
  // The network timer that a handle of one of these kinds belongs to; nullptr is counted.
  NetworkTimer* NetworkOf(Handle handle) {
    const Communicator* const communicator = communicators_.OwnerOf(handle);
    NetworkTimer* const network = communicator != nullptr ? communicator->network() : nullptr;
    if (network == nullptr) RefuseStep(handle);
    return network;
  }
  template <bool kHasTimeStamp>
  void StopOther(Handle handle);
  void StopRare(Handle handle);
  void StopNetworkOperation(Handle handle);

  Process& process_;
  CommunicatorTable& communicators_;
};

// The calling thread.

inline void* Callbacks::StartCallGroup(void* context, int depth) {
  const Handle from = Handle::From(context);
  Communicator* communicator = Find(from);
  if (communicator == nullptr) return nullptr;
  communicator->work_items().NoteGroup(depth);
  return from.With(HandleKind::kGroupApi, 0).Pointer();
}

inline void* Callbacks::StartCall(void* context, Function function, bool is_captured) {
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
    process_.host_announcements().SetPossible();
    const uint64_t thread = process_.capturing_threads().Number();
    return Handle::Of(communicators_.Salt(), HandleKind::kCapturedCall, thread)
        .WithSteps(has_steps)
        .Pointer();
  }
  const uint64_t now_ns = NowNs();
  communicator->work_items().NoteCall(now_ns);
  return Handle::Of(communicators_.Salt(), HandleKind::kCall,
                    process_.call_clock().PayloadOf(now_ns))
      .WithSteps(has_steps)
      .Pointer();
}

// Where calls are not announced (API v4 and before), it is not known whether one was captured.
template <bool kHasCallEvents>
inline void* Callbacks::StartLaunch(void* context) {
  const Handle from = Handle::From(context);
  Communicator* communicator = Find(from);
  if (communicator == nullptr) return nullptr;
  process_.CheckMask(from.Slot());
  if (NetworkTimer* const network = communicator->network()) network->BeginLaunch();
  const bool is_alone = kHasCallEvents && !process_.host_announcements().ArePossible();
  const uint64_t ticket =
      communicator->FollowsOperations() ? communicator->OpenLaunch(is_alone) : 0;
  return from.With(ticket != 0 ? HandleKind::kGroup : HandleKind::kUnfollowed, ticket).Pointer();
}

inline bool Callbacks::DateCall(Handle call, OperationStart* start) {
  const HandleKind kind = communicators_.KindOf(call);
  if (kind == HandleKind::kCall) {
    start->call_is_bound = process_.call_clock().TimeOf(call.CallPayload(), &start->call_ns);
    if (!start->call_is_bound) start->call_ns = NowNs();
    return true;
  }
  start->call_ns = NowNs();
  if (kind == HandleKind::kCapturedCall) {
    if (process_.capturing_threads().IsCurrent(call.CallPayload())) return false;
    start->call_is_bound = true;  // the kernel waits for this very callback
    start->is_replay = true;
  }
  return true;
}

// All kernel events of a symmetric plan are its first task's, which announces its channels; the
// other tasks announce none. A captured plan announces the same and has no kernel events at all
// (2.31.2 plugin/profiler.cc :598-604, profilerPostPlanWorkSym; scheduler/symmetric_sched.cc
// :293-296). A task whose call is not known may be a replay.
inline void Callbacks::PlaceInSymmetricPlan(OperationStart& start,
                                            const Communicator& communicator) {
  if (!communicator.ReadsKernels()) return;
  start.is_untimed |= start.is_replay || !start.call_is_bound;
  if (start.channels != 0) return;
  start.is_carried = start.launch != 0;
  start.is_untimed |= !start.is_carried;
}

inline void* Callbacks::StartTask(void* context, OperationStart& start, const TaskOrigin& origin,
                                  uint64_t count, uint32_t element_bytes, void* call,
                                  void* launch) {
  const Handle from = Handle::From(context);
  Communicator* communicator = Find(from);
  if (communicator == nullptr) return nullptr;
  if (!DateCall(Handle::From(call), &start)) return from.With(HandleKind::kUnfollowed, 0).Pointer();
  if (origin.names_communicator && !communicators_.HasIdentity(from.Slot())) {
    process_.LearnIdentity(from.Slot(), origin.communicator_id, origin.rank);
  }
  const Handle group = Handle::From(launch);
  if (group.Slot() == from.Slot()) {
    const HandleKind kind = communicators_.KindOf(group);
    start.launch_is_followed = kind != HandleKind::kUnfollowed;
    if (kind == HandleKind::kGroup) start.launch = group.Ticket();
  }
  if (start.is_symmetric) PlaceInSymmetricPlan(start, *communicator);
  start.message_bytes = MessageBytes(start.function, count, element_bytes,
                                     communicators_.RanksOf(from, *communicator));
  start.is_alone = start.has_call_events && start.call_is_bound && !start.is_replay &&
                   !process_.host_announcements().ArePossible();
  start.is_to_self = start.peer >= 0 && start.peer == communicator->rank();
  start.has_no_parts = start.is_to_self && communicator->source() == TimingSource::kProxy;
  const uint64_t trace_flags = process_.TraceFlags(start.call_ns, *communicator);
  bool times_network = false;
  if (NetworkTimer* const network = communicator->network()) {
    times_network = network->Takes(start.call_is_bound && !start.is_replay);
    if (times_network && HasSteps(Handle::From(call)))
      communicator->recorder().CountNetworkTimed(start.function, start.message_bytes);
    network->windows().Note(start.call_ns);
  }
  const uint64_t ticket = communicator->StartOperation(start);
  const Handle handle =
      from.With(ticket != 0 ? HandleKind::kOperation : HandleKind::kUnfollowed, ticket);
  if (trace_flags != 0 && ticket != 0) [[unlikely]]
    TraceOperation(*communicator, ticket, start.function, start.peer, start.sequence, start.call_ns,
                   start.message_bytes);
  return handle.WithFlags(times_network, trace_flags).Pointer();
}

// The progress thread.

template <bool kHasTimeStamp>
[[gnu::always_inline]] inline void* Callbacks::StartKernelChannel(void* task, uint32_t channel,
                                                                  uint64_t gpu_ns) {
  const Handle handle = Handle::From(task);
  Communicator* communicator = communicators_.Owner(handle, HandleKind::kOperation);
  if (communicator == nullptr || channel >= Handle::kMaxChannels)
    return RefuseChannel(handle, channel);
  if constexpr (!kHasTimeStamp) gpu_ns = NowNs();
  if (!communicator->StartChannel(handle.Ticket(), channel, gpu_ns)) return nullptr;
  return handle.OfChannel(channel).Pointer();
}

[[gnu::always_inline]] inline void Callbacks::StampKernelChannel(void* pointer, uint64_t gpu_ns) {
  const Handle handle = Handle::From(pointer);
  Communicator* communicator = communicators_.Owner(handle, HandleKind::kKernelChannel);
  if (communicator == nullptr) return StampTracedChannel(process_, handle, gpu_ns);
  communicator->StampChannel(handle.Ticket(), handle.Channel(), gpu_ns);
}

[[gnu::always_inline]] inline void* Callbacks::StartProxyStep(void* proxy_operation, int step) {
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

[[gnu::always_inline]] inline void Callbacks::RecordProxyStep(void* step, int state,
                                                              uint64_t bytes) {
  const Handle handle = Handle::From(step);
  if (!communicators_.Fits(handle, HandleKind::kNetworkStep)) return RefuseStep(handle);
  if (NetworkTimer* const network = NetworkOf(handle))
    network->NoteStepState(handle.NetworkBits(), state, bytes);
}

template <bool kHasTimeStamp>
[[gnu::always_inline]] inline void Callbacks::Stop(void* pointer) {
  const Handle handle = Handle::From(pointer);
  if (!communicators_.Fits(handle, HandleKind::kKernelChannel))
    return StopOther<kHasTimeStamp>(handle);
  Communicator* communicator = communicators_.OwnerOf(handle);
  if (communicator == nullptr) return process_.CountLoss(Loss::kUnknownHandle);
  if constexpr (!kHasTimeStamp)
    communicator->StampChannel(handle.Ticket(), handle.Channel(), NowNs());
  communicator->StopChannel(handle.Ticket(), handle.Channel());
}

template <bool kHasTimeStamp>
[[gnu::always_inline]] inline void Callbacks::StopOther(Handle handle) {
  const HandleKind kind = communicators_.KindOf(handle);
  if (kind == HandleKind::kOperation || kind == HandleKind::kCall)
    return;  // "handed over", not "done"
  if constexpr (!kHasTimeStamp) {
    if (kind == HandleKind::kTracedKernelChannel) StampTracedChannel(process_, handle, NowNs());
  }
  if (kind != HandleKind::kNetworkStep) return StopRare(handle);
  if (NetworkTimer* const network = NetworkOf(handle)) network->StopStep(handle.NetworkBits());
}

}  // namespace nccl_exporter::plugin
