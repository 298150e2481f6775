// SPDX-License-Identifier: Apache-2.0
// Turns one form of events into the descriptors of seven versions.
#include "plugin/fuzz/callback_fuzz_tables.h"

#include <cstdlib>
#include <memory>

namespace abi = nccl_exporter::abi;

extern "C" {
extern const abi::ProfilerV1<abi::DescriptorV1> ncclProfiler_v1;
extern const abi::ProfilerV1<abi::DescriptorV2> ncclProfiler_v2;
extern const abi::ProfilerV1<abi::DescriptorV3> ncclProfiler_v3;
extern const abi::ProfilerV4<abi::DescriptorV4> ncclProfiler_v4;
extern const abi::ProfilerV5<abi::DescriptorV5> ncclProfiler_v5;
extern const abi::ProfilerV5<abi::DescriptorV6> ncclProfiler_v6;
extern const abi::ProfilerV5<abi::DescriptorV7> ncclProfiler_v7;
}

namespace nccl_exporter::plugin::fuzz {
namespace {

// The tables differ in the arguments of init.
template <typename D>
void CallInit(const abi::ProfilerV1<D>& table, void** context, int* mask, const Introduction&) {
  table.init(context, mask);
}
template <typename D>
void CallInit(const abi::ProfilerV4<D>& table, void** context, int* mask, const Introduction& i) {
  table.init(context, mask, i.name, i.id, i.nodes, i.ranks, i.rank, i.logger);
}
template <typename D>
void CallInit(const abi::ProfilerV5<D>& table, void** context, int* mask, const Introduction& i) {
  table.init(context, i.id, mask, i.name, i.nodes, i.ranks, i.rank, i.logger);
}

template <typename Task>
void FillTask(Task& task, const Event& event) {
  if constexpr (requires { task.commHash; }) task.commHash = event.communicator_id;
  if constexpr (requires { task.func = event.function; }) {
    task.func = event.function;
    task.datatype = event.datatype;
  } else {
    task.func = event.function_number;
    task.datatype = event.datatype_number;
  }
  task.count = event.count;
  if constexpr (requires { task.nChannels; }) task.nChannels = event.channels;
  if constexpr (requires { task.parentGroup; }) task.parentGroup = event.launch;
  if constexpr (requires { task.seqNumber; }) task.seqNumber = event.sequence;
  if constexpr (requires { task.peer; }) task.peer = event.peer;
}

template <typename Call>
void FillCall(Call& call, const Event& event) {
  call.func = event.function;
  call.count = event.count;
  call.datatype = event.datatype;
  call.graphCaptured = event.is_captured;
}

template <typename D>
void Fill(D& d, const Event& event) {
  constexpr bool kHasCallEvents = requires { d.collApi; };
  d.type = static_cast<decltype(d.type)>(event.type);
  d.rank = event.rank;
  const bool is_task = event.type == abi::kColl || event.type == abi::kP2p;
  d.parentObj = is_task && !kHasCallEvents ? event.launch : event.parent;
  if (event.type == abi::kColl) FillTask(d.coll, event);
  if (event.type == abi::kP2p) FillTask(d.p2p, event);
  if (event.type == abi::kProxyOp) {
    d.proxyOp.pid = event.pid;
    d.proxyOp.channelId = event.channel;
    d.proxyOp.peer = event.peer;
    d.proxyOp.isSend = event.is_send ? 1 : 0;
  }
  if constexpr (requires { d.proxyStep.step; }) {
    if (event.type == abi::kProxyStep) d.proxyStep.step = event.step;
  }
  if constexpr (requires { d.kernelCh.channelId; }) {
    if (event.type == abi::kKernelCh) {
      d.kernelCh.channelId = event.channel;
      if constexpr (requires { d.kernelCh.pTimer; }) d.kernelCh.pTimer = event.gpu_ns;
    }
  }
  if constexpr (kHasCallEvents) {
    if (event.type == abi::kGroupApi) d.groupApi.graphCaptured = event.is_captured;
    if (event.type == abi::kCollApi) FillCall(d.collApi, event);
    if (event.type == abi::kP2pApi) FillCall(d.p2pApi, event);
  }
  if constexpr (requires { d.ceColl.func; }) {
    if (event.type == abi::kCeColl) FillTask(d.ceColl, event);
  }
}

template <typename D, typename Exported>
class TableOfVersion : public Table {
 public:
  explicit TableOfVersion(const Exported& table) : table_(table) {}

  void Init(void** context, int* mask, const Introduction& introduction) const override {
    CallInit(table_, context, mask, introduction);
  }
  void Start(void* context, void** handle, const Event* event) const override {
    if (event == nullptr) {
      table_.startEvent(context, handle, nullptr);
      return;
    }
    // On the heap, so that reading beyond it is noticed.
    const auto descriptor = std::make_unique<D>();
    Fill(*descriptor, *event);
    table_.startEvent(context, handle, descriptor.get());
  }
  void Stop(void* handle) const override { table_.stopEvent(handle); }
  void Record(void* handle, int state, abi::StateArgs* arguments) const override {
    table_.recordEventState(handle, state, arguments);
  }
  void Finalize(void* context) const override { table_.finalize(context); }

 private:
  const Exported& table_;
};

template <typename D, typename Exported>
const Table& Wrap(const Exported& exported) {
  static const TableOfVersion<D, Exported> table(exported);
  return table;
}

}  // namespace

const Table& TableOf(int version) {
  switch (version) {
    case 1:
      return Wrap<abi::DescriptorV1>(ncclProfiler_v1);
    case 2:
      return Wrap<abi::DescriptorV2>(ncclProfiler_v2);
    case 3:
      return Wrap<abi::DescriptorV3>(ncclProfiler_v3);
    case 4:
      return Wrap<abi::DescriptorV4>(ncclProfiler_v4);
    case 5:
      return Wrap<abi::DescriptorV5>(ncclProfiler_v5);
    case 6:
      return Wrap<abi::DescriptorV6>(ncclProfiler_v6);
    default:
      return Wrap<abi::DescriptorV7>(ncclProfiler_v7);
  }
}

}  // namespace nccl_exporter::plugin::fuzz
