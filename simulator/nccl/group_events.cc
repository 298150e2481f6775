// SPDX-License-Identifier: Apache-2.0
#include "simulator/nccl/group_events.h"

namespace nccl_exporter::sim {
namespace {

// Bits that start an event by themselves or because its children need it.
constexpr uint32_t kTaskBits = kProxyOp | kProxyStep | kKernelCh | kNetPlugin;
constexpr uint32_t kCollBits = kCollApi | kColl | kTaskBits;
constexpr uint32_t kP2pBits = kP2pApi | kP2p | kTaskBits;
constexpr uint32_t kGroupBits = kGroupApi | kKernelLaunch | kGroup | kCollBits | kP2pBits;

uint32_t CopyEngineBits(const Release& release) {
  return release.nccl_version() >= 22900 ? uint32_t{kAnyCopyEngine} : 0;
}

const void* StreamOf(const RankCall& call) {
  return reinterpret_cast<const void*>(uintptr_t{0x5000} +
                                       static_cast<uintptr_t>(call.communicator) * 16);
}

Descriptor DescribeCall(const Release& release, const RankCall& call, const void* parent,
                        bool is_captured) {
  const std::string_view function = TraitsOf(call.function).name;
  const std::string_view datatype = call.datatype == "ncclUint8" ? "Unknown" : call.datatype;
  const uint64_t captured = is_captured ? 1 : 0;
  if (call.peer >= 0) {
    Descriptor descriptor(release.api_version(), kP2pApi, parent, 0);
    descriptor.PutText(Field::kP2pApiFunc, function)
        .Put(Field::kP2pApiCount, call.count)
        .PutText(Field::kP2pApiDatatype, datatype)
        .PutPointer(Field::kP2pApiStream, StreamOf(call))
        .Put(Field::kP2pApiCaptured, captured);
    return descriptor;
  }
  Descriptor descriptor(release.api_version(), kCollApi, parent, 0);
  descriptor.PutText(Field::kCollApiFunc, function)
      .Put(Field::kCollApiCount, call.count)
      .PutText(Field::kCollApiDatatype, datatype)
      .PutSigned(Field::kCollApiRoot, call.root)
      .PutPointer(Field::kCollApiStream, StreamOf(call))
      .Put(Field::kCollApiCaptured, captured);
  return descriptor;
}

}  // namespace

void GroupEvents::OpenGroup(const LiveCommunicator& communicator, int depth, bool is_captured,
                            int64_t& now_ns) {
  mask_ = plugin_.Mask();
  if (group_handle_ != nullptr || !Starts(kGroupBits | CopyEngineBits(release_))) return;
  Descriptor descriptor(release_.api_version(), kGroupApi, nullptr, 0);
  descriptor.Put(Field::kGroupApiCaptured, is_captured ? 1 : 0)
      .PutSigned(Field::kGroupApiDepth, depth);
  plugin_.Start(communicator.context, &group_handle_, descriptor, now_ns += kCallbackNs);
  if (group_handle_ != nullptr) {
    plugin_.Record(group_handle_, EventState::kGroupStartApiStop, nullptr, now_ns += kCallbackNs);
  }
}

GroupEvents::CallEvent GroupEvents::Call(LiveCommunicator& communicator, const RankCall& call,
                                         int depth, bool is_captured, int64_t& now_ns) {
  if (!release_.AnnouncesCalls()) return {plugin_.Mask(), nullptr};
  OpenGroup(communicator, depth, is_captured, now_ns);
  const bool is_p2p = call.peer >= 0;
  void*& slot = is_p2p ? p2p_handle_ : coll_handle_;
  if (is_p2p) slot = nullptr;
  if (Starts(is_p2p ? kP2pBits : kCollBits | CopyEngineBits(release_))) {
    Descriptor descriptor = DescribeCall(release_, call, group_handle_, is_captured);
    plugin_.Start(communicator.context, &slot, descriptor, now_ns += kCallbackNs);
    communicator.truth.AddCall(call.function);
  }
  if (slot != nullptr) plugin_.Stop(slot, now_ns += kCallbackNs);
  return {mask_, slot};
}

void GroupEvents::BeginEnd(int64_t& now_ns) {
  if (group_handle_ == nullptr) return;
  plugin_.Record(group_handle_, EventState::kGroupEndApiStart, nullptr, now_ns += kCallbackNs);
}

void GroupEvents::End(int64_t& now_ns) {
  if (group_handle_ == nullptr) return;
  plugin_.Stop(group_handle_, now_ns += kCallbackNs);
  group_handle_ = nullptr;
}

void GroupEvents::LaunchKernel(const LiveCommunicator& communicator, uint32_t mask,
                               int64_t& now_ns) {
  if (!release_.HasApiEvents() || (mask & kKernelLaunch) == 0) return;
  void* handle = nullptr;
  Descriptor descriptor(release_.api_version(), kKernelLaunch, group_handle_, 0);
  plugin_.Start(communicator.context, &handle, descriptor, now_ns += kCallbackNs);
  if (handle != nullptr) plugin_.Stop(handle, now_ns += kCallbackNs);
}

}  // namespace nccl_exporter::sim
