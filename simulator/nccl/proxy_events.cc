// SPDX-License-Identifier: Apache-2.0
#include "simulator/nccl/proxy_events.h"

#include "simulator/release/descriptor.h"
#include "simulator/workload/thread_step.h"

namespace nccl_exporter::sim {
namespace {

constexpr std::array kSendStates{EventState::kProxyOpSendPosted,
                                 EventState::kProxyOpSendRemFifoWait,
                                 EventState::kProxyOpSendTransmitted, EventState::kProxyOpSendDone};
constexpr std::array kRecvStates{EventState::kProxyOpRecvPosted, EventState::kProxyOpRecvReceived,
                                 EventState::kProxyOpRecvTransmitted, EventState::kProxyOpRecvDone};

// The operation's state that up to 2.26 comes with the step's (2.26.6 src/transport/net.cc).
EventState OperationStateOf(EventState step) {
  switch (step) {
    case EventState::kProxyStepSendGpuWait:
      return EventState::kProxyOpSendPosted;
    case EventState::kProxyStepSendPeerWait:
      return EventState::kProxyOpSendRemFifoWait;
    case EventState::kProxyStepSendWait:
      return EventState::kProxyOpSendTransmitted;
    case EventState::kProxyStepRecvWait:
      return EventState::kProxyOpRecvPosted;
    case EventState::kProxyStepRecvFlushWait:
      return EventState::kProxyOpRecvReceived;
    default:
      return EventState::kProxyOpRecvTransmitted;
  }
}

}  // namespace

bool ProxyEvents::HasSteps() const {
  const uint32_t bits = kProxyStep | (release_.HasKernelEvents() ? uint32_t{kNetPlugin} : 0);
  return release_.HasTransferSteps() && (identity_.mask & bits) != 0;
}

void ProxyEvents::Start(int64_t now_ns) {
  Descriptor descriptor(release_.api_version(), kProxyOp, identity_.parent, identity_.rank);
  descriptor.PutSigned(Field::kProxyOpPid, identity_.pid)
      .PutSigned(Field::kProxyOpChannel, identity_.channel)
      .PutSigned(Field::kProxyOpPeer, identity_.peer)
      .PutSigned(Field::kProxyOpSteps, operation_.steps())
      .Put(Field::kProxyOpChunk, identity_.chunk_bytes)
      .PutSigned(Field::kProxyOpIsSend, operation_.is_send());
  plugin_.Start(identity_.context, &handle_, descriptor, now_ns);
}

void ProxyEvents::Begin(int64_t now_ns) {
  if (handle_ == nullptr || release_.HasDetailedProxyStates()) return;
  StateArguments arguments(0);
  plugin_.Record(handle_, EventState::kProxyOpInProgress, &arguments, now_ns);
}

int64_t ProxyEvents::Progress(int64_t now_ns) {
  calls_.clear();
  stopped_ = -1;
  const int64_t next_ns = operation_.Progress(now_ns, calls_);
  for (const StepCall& call : calls_) {
    if (abort_after_ >= 0 && call.step >= abort_after_) {
      is_aborted_ = true;
      return kNever;
    }
    Call(call, now_ns);
  }
  return next_ns;
}

void ProxyEvents::Stop(int64_t now_ns) {
  if (handle_ == nullptr) return;
  if (release_.HasDetailedProxyStates() && !HasSteps()) {
    transferred_ = 0;
    for (const StepMarks& step : operation_.marks()) transferred_ += step.bytes;
    for (const EventState state : operation_.is_send() ? kSendStates : kRecvStates)
      RecordOperation(state, operation_.steps(), now_ns);
  }
  plugin_.Stop(handle_, now_ns);
}

void ProxyEvents::Call(const StepCall& call, int64_t now_ns) {
  switch (call.kind) {
    case StepCall::Kind::kStart:
      return StartStep(call.step, now_ns);
    case StepCall::Kind::kRecord:
      return RecordStep(call, now_ns);
    case StepCall::Kind::kStop:
      return StopStep(call.step, now_ns);
  }
}

void ProxyEvents::StartStep(int step, int64_t now_ns) {
  if (handle_ == nullptr && !release_.StartsStepsOfRefused()) return;
  Descriptor descriptor(release_.api_version(), kProxyStep, handle_, identity_.rank);
  descriptor.PutSigned(Field::kProxyStepStep, step);
  plugin_.Start(identity_.context, &SlotOf(step), descriptor, now_ns);
}

void ProxyEvents::RecordStep(const StepCall& call, int64_t now_ns) {
  const bool is_transfer = call.state == EventState::kProxyStepSendWait ||
                           call.state == EventState::kProxyStepRecvFlushWait;
  const uint64_t bytes = operation_.marks()[static_cast<size_t>(call.step)].bytes;
  if (is_transfer) transferred_ = release_.SumsBytesForGood() ? transferred_ + bytes : bytes;
  if (handle_ == nullptr) return;
  if (release_.HasDetailedProxyStates()) {
    RecordOperation(OperationStateOf(call.state), call.step + 1, now_ns);
    if (call.state == EventState::kProxyStepSendPeerWait) return;
    if (void* const slot = SlotOf(call.step)) plugin_.Record(slot, call.state, nullptr, now_ns);
    return;
  }
  StateArguments arguments(transferred_);
  if (void* const slot = SlotOf(call.step)) plugin_.Record(slot, call.state, &arguments, now_ns);
}

void ProxyEvents::StopStep(int step, int64_t now_ns) {
  const bool is_next = stopped_ >= 0 && !operation_.is_send() && release_.StopsOneReceiveOfAPoll();
  if (!is_next) stopped_ = step;
  void*& slot = SlotOf(stopped_);
  if (slot != nullptr) plugin_.Stop(slot, now_ns);
  slot = nullptr;
  if (handle_ == nullptr || !release_.HasDetailedProxyStates()) return;
  RecordOperation(
      operation_.is_send() ? EventState::kProxyOpSendDone : EventState::kProxyOpRecvDone, step + 1,
      now_ns);
}

void ProxyEvents::RecordOperation(EventState state, int steps, int64_t now_ns) {
  StateArguments arguments(transferred_, static_cast<uint64_t>(steps));
  plugin_.Record(handle_, state, &arguments, now_ns);
}

}  // namespace nccl_exporter::sim
