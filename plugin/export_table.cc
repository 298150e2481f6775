// SPDX-License-Identifier: Apache-2.0
// The seven symbols that NCCL looks for, and the one template behind them: it brings a version's descriptor into our
// form, asking the descriptor what it has, and hands over to Process.
#include <atomic>

#include "plugin/process.h"
#include "plugin/profiler_abi.h"
#include "plugin/vocabulary.h"

namespace nccl_exporter {
namespace {

template <typename Descriptor>
struct Adapter {
  static constexpr bool kHasCallEvents = requires(Descriptor d) { d.collApi; };
  static constexpr bool kHasCopyEngine = requires(Descriptor d) { d.ceColl; };
  static constexpr bool kHasKernelChannels = requires(Descriptor d) { d.kernelCh; };
  static constexpr bool kHasTimeStamps = requires(Descriptor d) { d.kernelCh.pTimer; };
  static constexpr bool kNamesCommunicatorPerEvent = requires(Descriptor d) { d.coll.commHash; };

  // What is the same for a collective and a point-to-point task.
  template <typename Task>
  static void* StartTask(void* context, const Descriptor& d, const Task& task, OperationStart& start) {
    start.function = FunctionOf(task.func);
    TaskOrigin origin;
    if constexpr (kNamesCommunicatorPerEvent) origin = {.tells_identity = true, .id = task.commHash, .rank = d.rank};
    // Since v5 the parent is the API call, and the launch has a field of its own; before, the parent is the launch.
    void* call = nullptr;
    void* launch = d.parentObj;
    if constexpr (kHasCallEvents) {
      call = d.parentObj;
      launch = task.parentGroup;
    }
    return Process::Get()->StartTask(context, start, origin, task.count, ElementBytesOf(task.datatype), call, launch);
  }

  static void* StartColl(void* context, const Descriptor& d) {
    OperationStart start;
    start.sequence = d.coll.seqNumber;
    if constexpr (requires { d.coll.nChannels; }) {
      start.channels = d.coll.nChannels <= Handle::kMaxChannels ? d.coll.nChannels : 0;  // RCCL: may be garbage
      start.channels_are_exact = start.channels != 0;
    }
    return StartTask(context, d, d.coll, start);
  }

  static void* StartP2p(void* context, const Descriptor& d) {
    OperationStart start;
    start.peer = d.p2p.peer;
    if constexpr (requires { d.p2p.nChannels; }) {
      start.channels = d.p2p.nChannels <= Handle::kMaxChannels ? d.p2p.nChannels : 0;
    }
    // NCCL 2.27 to 2.30 reports no channels for a send to self, 2.31 does.
    start.has_no_parts = kHasTimeStamps && !requires { d.coll.userTag; };
    return StartTask(context, d, d.p2p, start);
  }

  [[gnu::noinline]] static void* Dispatch(void* context, const Descriptor& d) {
    Process& process = *Process::Get();
    switch (static_cast<uint64_t>(d.type)) {
      case abi::kGroup:
        return process.StartLaunch(context);
      case abi::kColl:
        return StartColl(context, d);
      case abi::kP2p:
        return StartP2p(context, d);
      case abi::kProxyOp:
        return process.StartProxyOperation(d.parentObj, d.proxyOp.pid);
      case abi::kKernelCh:
        if constexpr (kHasKernelChannels && !kHasTimeStamps) {
          return process.StartKernelChannel(d.parentObj, d.kernelCh.channelId, 0);
        }
        return nullptr;
      default:
        return DispatchLater(context, d);
    }
  }

  // Events that came with v5 and v6. Every other one was not asked for.
  static void* DispatchLater(void* context, const Descriptor& d) {
    Process& process = *Process::Get();
    if constexpr (kHasCallEvents) {
      if (d.type == abi::kGroupApi) return process.StartCallGroup(context);
      if (d.type == abi::kCollApi) {
        return process.StartCall(context, FunctionOf(d.collApi.func), d.collApi.graphCaptured, d.parentObj);
      }
      if (d.type == abi::kP2pApi) {
        return process.StartCall(context, FunctionOf(d.p2pApi.func), d.p2pApi.graphCaptured, d.parentObj);
      }
    }
    if constexpr (kHasCopyEngine) {
      if (d.type == abi::kCeColl) {
        return process.StartCopyEngineTask(context, FunctionOf(d.ceColl.func), d.ceColl.count,
                                           ElementBytesOf(d.ceColl.datatype));
      }
    }
    return nullptr;
  }

  static abi::Result StartEvent(void* context, void** handle, Descriptor* descriptor) {
    if (handle == nullptr) return abi::kSuccess;
    *handle = nullptr;  // NCCL does not clear it, and would stop whatever it held before
    Process* process = Process::Get();
    if (descriptor == nullptr || process == nullptr) return abi::kSuccess;
    if constexpr (kHasTimeStamps) {  // by far the most frequent
      if (descriptor->type == abi::kKernelCh) {
        const auto& kernel = descriptor->kernelCh;
        *handle = process->StartKernelChannel(descriptor->parentObj, kernel.channelId, kernel.pTimer);
        return abi::kSuccess;
      }
    }
    *handle = Dispatch(context, *descriptor);
    return abi::kSuccess;
  }

  static abi::Result StopEvent(void* handle) {
    if (Process* process = Process::Get()) process->Stop(handle);
    return abi::kSuccess;
  }

  static abi::Result RecordEventState(void* handle, int state, abi::StateArgs* args) {
    if constexpr (kHasTimeStamps) {
      Process* process = Process::Get();
      if (state == abi::kStateKernelChStop && handle != nullptr && args != nullptr && process != nullptr) {
        process->StampKernelChannel(handle, args->pTimer);
      }
    }
    return abi::kSuccess;
  }

  static abi::Result Finalize(void* context) {
    if (Process* process = Process::Get()) process->Finalize(context);
    return abi::kSuccess;
  }
};

abi::Result Init(const InitRequest& request, void** context, int* mask) {
  if (context == nullptr || mask == nullptr) return abi::kSuccess;
  *context = nullptr;
  if (Process* process = Process::Obtain()) process->Init(request, context, mask);
  return abi::kSuccess;
}

template <int kVersion>
abi::Result InitV1(void** context, int* mask) {
  return Init({.api_version = kVersion}, context, mask);
}

template <int kVersion>
abi::Result InitV4(void** context, int* mask, const char* name, uint64_t id, int nodes, int ranks, int rank,
                   abi::Logger logger) {
  return Init({kVersion, true, id, name, nodes, ranks, rank, logger}, context, mask);
}

template <int kVersion>
abi::Result InitV5(void** context, uint64_t id, int* mask, const char* name, int nodes, int ranks, int rank,
                   abi::Logger logger) {
  return InitV4<kVersion>(context, mask, name, id, nodes, ranks, rank, logger);
}

template <typename Descriptor, typename Table>
constexpr Table Fill(decltype(Table::init) init) {
  using A = Adapter<Descriptor>;
  return {"nccl-exporter", init, A::StartEvent, A::StopEvent, A::RecordEventState, A::Finalize};
}

}  // namespace
}  // namespace nccl_exporter

#define EXPORT_TABLE(version, table, init)                                                          \
  extern "C" __attribute__((visibility("default")))                                                 \
  const nccl_exporter::abi::table<nccl_exporter::abi::DescriptorV##version>                         \
      ncclProfiler_v##version =                                                                     \
          nccl_exporter::Fill<nccl_exporter::abi::DescriptorV##version,                             \
                              nccl_exporter::abi::table<nccl_exporter::abi::DescriptorV##version>>( \
              nccl_exporter::init<version>)

EXPORT_TABLE(1, ProfilerV1, InitV1);
EXPORT_TABLE(2, ProfilerV1, InitV1);
EXPORT_TABLE(3, ProfilerV1, InitV1);
EXPORT_TABLE(4, ProfilerV4, InitV4);
EXPORT_TABLE(5, ProfilerV5, InitV5);
EXPORT_TABLE(6, ProfilerV5, InitV5);
EXPORT_TABLE(7, ProfilerV5, InitV5);
