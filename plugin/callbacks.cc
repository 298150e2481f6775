// SPDX-License-Identifier: Apache-2.0
#include "plugin/callbacks.h"

namespace nccl_exporter::plugin {

// The stop of its event is that of the host's call (2.30.7 ce_coll.cc :1361-1408,
// ncclLaunchCeColl). NCCL hands it to the streams that order the communicator's kernels
// (enqueue.cc, ncclLaunchPrepare), so that it is over once a later one has run. It is a launch of
// its own, for operations are ordered by their launches.
void* Process::StartCopyEngineTask(void* context, Function function, uint64_t count,
                                   uint32_t element_bytes, void* call) {
  const Handle from = Handle::From(context);
  Communicator* communicator = Find(from);
  if (communicator == nullptr) return nullptr;
  void* const unfollowed = from.With(HandleKind::kUnfollowed, 0).Pointer();
  OperationStart start{.function = function, .has_call_events = true, .is_copy = true};
  if (!DateCall(Handle::From(call), &start)) return unfollowed;
  start.is_replay = false;  // NCCL announces none
  start.is_untimed = true;
  start.message_bytes =
      MessageBytes(function, count, element_bytes, communicators_.RanksOf(from, *communicator));
  NetworkTimer* const network = communicator->network();
  if (network != nullptr && network->Takes(start.call_is_bound) && HasSteps(Handle::From(call)))
    communicator->recorder().CountNetworkTimed(function, start.message_bytes);
  if (communicator->FollowsOperations())
    start.launch = communicator->OpenLaunch() & Handle::kTicketMask;
  start.launch_is_followed = start.launch != 0;
  communicator->StartOperation(start);
  if (start.launch != 0) communicator->CloseLaunch(start.launch);
  return unfollowed;
}

abi::Result Process::BeginChannels(void** handle, Communicator& communicator, Handle operation,
                                   uint32_t channel, uint64_t gpu_ns) {
  if (communicator.StartChannel(operation.Ticket(), channel, gpu_ns))
    *handle = operation.OfChannel(channel).Pointer();
  return abi::kSuccess;
}

abi::Result Process::RefuseChannel(Handle task, uint32_t channel) {
  if (!communicators_.Fits(task, HandleKind::kUnfollowed))
    CountLoss(channel >= Handle::kMaxChannels ? Loss::kChannelOutOfRange : Loss::kUnknownHandle);
  return abi::kSuccess;
}

// An operation that nobody follows has no ticket, and its network time counts none the less.
void* Process::StartProxyOperation(void* task, int pid, bool is_send, bool begins_later) {
  if (communicators_.Salt() == 0) return nullptr;
  if (pid != pid_) return CountLoss(Loss::kForeignProcess), nullptr;
  const Handle handle = Handle::From(task);
  const bool has_ticket = communicators_.Fits(handle, HandleKind::kOperation);
  Communicator* communicator = communicators_.OwnerOf(handle);
  if ((!has_ticket && !communicators_.Fits(handle, HandleKind::kUnfollowed)) ||
      communicator == nullptr) {
    return CountLoss(Loss::kUnknownHandle), nullptr;
  }
  const bool is_followed = has_ticket && communicator->source() == TimingSource::kProxy &&
                           (begins_later ? communicator->QueueProxy(handle.Ticket())
                                         : communicator->StartProxy(handle.Ticket()));
  NetworkTimer* const network = communicator->network();
  if (network == nullptr || !handle.NetworkFlag())
    return is_followed ? handle.As(HandleKind::kProxyOperation).Pointer() : nullptr;
  const uint32_t key =
      network->Start(is_send, has_ticket ? handle.Ticket() : NetworkTimer::kNoTicket);
  const HandleKind kind =
      is_followed ? HandleKind::kTimedProxyOperation : HandleKind::kNetworkOperation;
  return handle.WithNetworkBits(kind, key).Pointer();
}

void Process::BeginProxyOperation(void* proxy_operation) {
  const Handle handle = Handle::From(proxy_operation);
  const HandleKind kind = communicators_.KindOf(handle);
  const bool is_timed = kind == HandleKind::kTimedProxyOperation;
  if (!is_timed && kind != HandleKind::kProxyOperation) return;
  Communicator* const owner = communicators_.OwnerOf(handle);
  if (owner == nullptr) return;  // its stop is counted
  if (!is_timed) return owner->BeginProxy(handle.Ticket());
  owner->BeginProxy(NetworkTimer::TicketOf(handle.NetworkBits()), NetworkTimer::kTicketMask);
}

void Process::RecordProxyOperation(void* proxy_operation, int state, uint64_t sum_of_bytes,
                                   int steps) {
  const Handle handle = Handle::From(proxy_operation);
  const HandleKind kind = communicators_.KindOf(handle);
  if (kind != HandleKind::kNetworkOperation && kind != HandleKind::kTimedProxyOperation) return;
  if (NetworkTimer* const network = NetworkOf(handle))
    network->NoteOperationState(handle.NetworkBits(), state, sum_of_bytes, steps);
}

void Process::RefuseStep(Handle handle) {
  const HandleKind kind = communicators_.KindOf(handle);
  const bool is_of_network = kind == HandleKind::kNetworkStep ||
                             kind == HandleKind::kNetworkOperation ||
                             kind == HandleKind::kTimedProxyOperation;
  CountLoss(is_of_network ? Loss::kStaleHandle : Loss::kUnknownHandle);
}

static_assert(kOperationEntries <= NetworkTimer::kTicketMask,
              "a key knows operations in flight apart");

void Process::StopRare(Handle handle) {
  if (handle.bits == 0) return;
  Communicator* const owner = communicators_.OwnerOf(handle);
  switch (communicators_.KindOf(handle)) {
    case HandleKind::kCapturedCall:
    case HandleKind::kUnfollowed:
      return;
    case HandleKind::kGroup:
      if (owner != nullptr) return owner->CloseLaunch(handle.Ticket());
      break;
    case HandleKind::kProxyOperation:
      if (owner != nullptr) return owner->StopProxy(handle.Ticket());
      break;
    case HandleKind::kTimedProxyOperation:
      if (owner != nullptr) {
        owner->StopProxy(NetworkTimer::TicketOf(handle.NetworkBits()), NetworkTimer::kTicketMask);
      }
      [[fallthrough]];
    case HandleKind::kNetworkOperation:
      if (NetworkTimer* const network = NetworkOf(handle)) network->Stop(handle.NetworkBits());
      return;
    default:
      break;
  }
  CountLoss(Loss::kUnknownHandle);
}

}  // namespace nccl_exporter::plugin
