// SPDX-License-Identifier: Apache-2.0
// The seven symbols that NCCL looks for, and the one template behind them: it brings a version's
// descriptor into our form, asking the descriptor what it has, and hands over to Callbacks.

#include <strings.h>

#include <cstdlib>

#include "plugin/callbacks.h"
#include "plugin/chain/chained_events.h"
#include "plugin/nccl/profiler_abi.h"
#include "plugin/nccl/vocabulary.h"

namespace nccl_exporter::plugin {
namespace {

// Each event is one function with all that it calls, entered by a jump.
#define NCCL_EXPORTER_EVENT [[gnu::noinline, gnu::flatten]] static abi::Result

template <typename Descriptor>
struct Adapter {
  static constexpr bool kHasCallEvents = requires(Descriptor d) { d.collApi; };
  static constexpr bool kHasCopyEngine = requires(Descriptor d) { d.ceColl.func; };
  static constexpr bool kHasKernelChannels = requires(Descriptor d) { d.kernelCh.channelId; };
  static constexpr bool kHasTimeStamps = requires(Descriptor d) { d.kernelCh.pTimer; };
  static constexpr bool kHasProxySteps = requires(Descriptor d) { d.proxyStep.step; };
  static constexpr bool kNamesCommunicatorPerEvent = requires(Descriptor d) { d.coll.commHash; };

  // Start of a collective or a point-to-point task: the part that both share.
  template <typename Task>
  static void* StartTask(void* context, const Descriptor& d, const Task& task,
                         OperationStart& start) {
    start.function = FunctionOf(task.func);
    TaskOrigin origin;
    if constexpr (kNamesCommunicatorPerEvent)
      origin = {.names_communicator = true, .communicator_id = task.commHash, .rank = d.rank};
    // Since v5 the parent is the API call, and the launch has a field of its own; before, the
    // parent is the launch.
    void* call = nullptr;
    void* launch = d.parentObj;
    if constexpr (kHasCallEvents) {
      call = d.parentObj;
      launch = task.parentGroup;
      start.has_call_events = true;
    }
    return Process::Get()->StartTask(context, start, origin, task.count,
                                     ElementBytesOf(task.datatype), call, launch);
  }

  NCCL_EXPORTER_EVENT StartColl(void* context, void** handle, const Descriptor& d) {
    OperationStart start;
    start.sequence = d.coll.seqNumber;
    if constexpr (requires { d.coll.nChannels; }) {
      // RCCL: may be garbage.
      start.channels = d.coll.nChannels <= Handle::kMaxChannels ? d.coll.nChannels : 0;
      start.channels_are_exact = start.channels != 0;
    }
    if constexpr (requires { d.coll.isSymColl; }) start.is_symmetric = d.coll.isSymColl;
    *handle = StartTask(context, d, d.coll, start);
    return abi::kSuccess;
  }

  NCCL_EXPORTER_EVENT StartP2p(void* context, void** handle, const Descriptor& d) {
    OperationStart start;
    start.peer = d.p2p.peer;
    if constexpr (requires { d.p2p.nChannels; }) {
      start.channels = d.p2p.nChannels <= Handle::kMaxChannels ? d.p2p.nChannels : 0;
    }
    *handle = StartTask(context, d, d.p2p, start);
    return abi::kSuccess;
  }

  NCCL_EXPORTER_EVENT StartGroup(void* context, void** handle) {
    *handle = Process::Get()->template StartLaunch<kHasCallEvents>(context);
    return abi::kSuccess;
  }

  NCCL_EXPORTER_EVENT StartProxyOp(void** handle, const Descriptor& d) {
    *handle = Process::Get()->StartProxyOperation(d.parentObj, d.proxyOp.pid, d.proxyOp.isSend == 1,
                                                  kHasTimeStamps);
    return abi::kSuccess;
  }

  NCCL_EXPORTER_EVENT StartProxyStep(void** handle, const Descriptor& d) {
    *handle = Process::Get()->StartProxyStep(d.parentObj, d.proxyStep.step);
    return abi::kSuccess;
  }

  NCCL_EXPORTER_EVENT StartGroupApi(void* context, void** handle, const Descriptor& d) {
    *handle = Process::Get()->StartCallGroup(context, d.groupApi.groupDepth);
    return abi::kSuccess;
  }

  template <typename Call>
  NCCL_EXPORTER_EVENT StartCall(void* context, void** handle, const Call& call) {
    *handle = Process::Get()->StartCall(context, FunctionOf(call.func), call.graphCaptured);
    return abi::kSuccess;
  }

  template <typename Task>
  NCCL_EXPORTER_EVENT StartCopyEngine(void* context, void** handle, const Task& task, void* call) {
    *handle = Process::Get()->StartCopyEngineTask(context, FunctionOf(task.func), task.count,
                                                  ElementBytesOf(task.datatype), call);
    return abi::kSuccess;
  }
  NCCL_EXPORTER_EVENT StartKernelCh(void** handle, const Descriptor& d) {
    uint64_t gpu_ns = 0;
    if constexpr (kHasTimeStamps) gpu_ns = d.kernelCh.pTimer;
    return Process::Get()->template StartKernelChannel<kHasTimeStamps>(
        handle, d.parentObj, d.kernelCh.channelId, gpu_ns);
  }

  // The most frequent first.
  static abi::Result StartEvent(void* context, void** handle, Descriptor* descriptor) {
    if (handle == nullptr) return abi::kSuccess;
    *handle = nullptr;  // NCCL does not clear it, and would stop whatever it held before
    if (descriptor == nullptr || Process::Get() == nullptr) return abi::kSuccess;
    const Descriptor& d = *descriptor;
    const auto type = static_cast<uint64_t>(d.type);
    if constexpr (kHasKernelChannels) {
      if (type == abi::kKernelCh) return StartKernelCh(handle, d);
    }
    if constexpr (kHasProxySteps) {
      if (type == abi::kProxyStep) return StartProxyStep(handle, d);
    }
    if (type == abi::kColl) return StartColl(context, handle, d);
    if (type == abi::kGroup) return StartGroup(context, handle);
    if constexpr (kHasCallEvents) {
      if (type == abi::kCollApi) return StartCall(context, handle, d.collApi);
      if (type == abi::kGroupApi) return StartGroupApi(context, handle, d);
      if (type == abi::kP2pApi) return StartCall(context, handle, d.p2pApi);
    }
    if (type == abi::kP2p) return StartP2p(context, handle, d);
    if (type == abi::kProxyOp) return StartProxyOp(handle, d);
    if constexpr (kHasCopyEngine) {
      if (type == abi::kCeColl) return StartCopyEngine(context, handle, d.ceColl, d.parentObj);
    }
    return abi::kSuccess;  // not asked for
  }
};

// Stops, states and the end of a communicator look alike in the versions that announce alike.

template <bool kHasTimeStamps>
abi::Result StopEvent(void* handle) {
  if (Process* process = Process::Get()) process->Stop<kHasTimeStamps>(handle);
  return abi::kSuccess;
}

// `args` ends before `steps` from v4 on.
template <bool kHasTimeStamps>
NCCL_EXPORTER_EVENT RecordProxyStep(void* handle, int state, const abi::StateArgs* args) {
  const uint64_t bytes = kHasTimeStamps && args != nullptr ? args->transSize : 0;
  Process::Get()->RecordProxyStep(handle, state, bytes);
  return abi::kSuccess;
}
NCCL_EXPORTER_EVENT RecordProxyOp(void* handle, int state, const abi::StateArgs* args) {
  Process::Get()->RecordProxyOperation(handle, state, args->transSize, args->steps);
  return abi::kSuccess;
}

template <bool kHasTimeStamps, bool kHasProxySteps>
abi::Result RecordEventState(void* handle, int state, abi::StateArgs* args) {
  Process* process = Process::Get();
  if (process == nullptr || handle == nullptr) return abi::kSuccess;
  if (kHasTimeStamps && state == abi::kStateKernelChStop) {
    if (args != nullptr) process->StampKernelChannel(handle, args->pTimer);
    return abi::kSuccess;
  }
  if constexpr (kHasProxySteps) {
    const bool is_of_step =
        (abi::kFirstStateProxyStep <= state && state <= abi::kLastStateProxyStep) ||
        (kHasTimeStamps && state == abi::kStateProxyStepSendPeerWait);
    if (is_of_step) return RecordProxyStep<kHasTimeStamps>(handle, state, args);
    const bool is_of_operation = 0 <= state && state <= abi::kLastStateProxyOp;
    if (!kHasTimeStamps && is_of_operation && args != nullptr)
      return RecordProxyOp(handle, state, args);
  }
  if (kHasTimeStamps && state == abi::kStateProxyOpInProgress) process->BeginProxyOperation(handle);
  return abi::kSuccess;
}

abi::Result Finalize(void* context) {
  if (Process* process = Process::Get()) process->Finalize(context);
  return abi::kSuccess;
}

#undef NCCL_EXPORTER_EVENT

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
abi::Result InitV4(void** context, int* mask, const char* name, uint64_t id, int nodes, int ranks,
                   int rank, abi::Logger logger) {
  return Init({kVersion, true, id, name, nodes, ranks, rank, logger}, context, mask);
}

template <int kVersion>
abi::Result InitV5(void** context, uint64_t id, int* mask, const char* name, int nodes, int ranks,
                   int rank, abi::Logger logger) {
  return InitV4<kVersion>(context, mask, name, id, nodes, ranks, rank, logger);
}

// Table under an exported symbol. A later NCCL may read functions behind the table that this plugin
// knows (device hooks are proposed in pull request 2285): it reads null pointers there.
template <typename Table>
struct Exported {
  Table table;
  void* behind[16];
};

template <typename Descriptor, typename Table>
constexpr Exported<Table> Fill(decltype(Table::init) init) {
  using A = Adapter<Descriptor>;
  return {{kPluginName, init, A::StartEvent, StopEvent<A::kHasTimeStamps>,
           RecordEventState<A::kHasTimeStamps, A::kHasProxySteps>, Finalize},
          {}};
}

}  // namespace
}  // namespace nccl_exporter::plugin

#define EXPORT_TABLE(version, table, init)                                          \
  extern "C" {                                                                      \
  __attribute__((visibility("default"))) constinit nccl_exporter::plugin::Exported< \
      nccl_exporter::abi::table<nccl_exporter::abi::DescriptorV##version>>          \
      ncclProfiler_v##version = nccl_exporter::plugin::Fill<                        \
          nccl_exporter::abi::DescriptorV##version,                                 \
          nccl_exporter::abi::table<nccl_exporter::abi::DescriptorV##version>>(     \
          nccl_exporter::plugin::init<version>);                                    \
  }

EXPORT_TABLE(1, ProfilerV1, InitV1)
EXPORT_TABLE(2, ProfilerV1, InitV1)
EXPORT_TABLE(3, ProfilerV1, InitV1)
EXPORT_TABLE(4, ProfilerV4, InitV4)
EXPORT_TABLE(5, ProfilerV5, InitV5)
EXPORT_TABLE(6, ProfilerV5, InitV5)
EXPORT_TABLE(7, ProfilerV5, InitV5)

namespace nccl_exporter::plugin {
namespace {

// When the library is loaded, before NCCL reads a table: without a chain they stay what they are.
[[gnu::constructor]] void ChainTables() {
  const char* const library = std::getenv("NCCL_EXPORTER_CHAIN");
  if (library == nullptr || library[0] == '\0' || strcasecmp(library, "none") == 0) return;
  Chain::library = library;
  PassOn<4>(ncclProfiler_v4.table);
  PassOn<5>(ncclProfiler_v5.table);
  PassOn<6>(ncclProfiler_v6.table);
  PassOn<7>(ncclProfiler_v7.table);
}

}  // namespace
}  // namespace nccl_exporter::plugin
