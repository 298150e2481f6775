// SPDX-License-Identifier: Apache-2.0
// A profiler plugin for tests: writes down every callback with all its fields, for every version of
// the API. It reads them by the structs of the real plugin: where they and the simulator's table of
// offsets differ, tests fail.
#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>

#include "plugin/nccl/profiler_abi.h"
#include "simulator/testing/recording.h"

namespace nccl_exporter::sim::recorded {
namespace {

using abi::Logger;

// The API events of v7, with the field that the real plugin does not read.
struct CollApiV7 : abi::CollApiV5 {
  uint64_t userTag;
};
struct P2pApiV7 : abi::P2pApiV5 {
  uint64_t userTag;
};

// State arguments; those of v1 are no part of what the real plugin reads.
struct StateArgsV1 {
  size_t transSize;
  int steps;
};

// Settings of a program that is started by itself.
uint32_t NumberOfEnvironment(const char* name) {
  const char* number = std::getenv(name);
  return number == nullptr ? 0 : static_cast<uint32_t>(std::atoi(number));
}

struct Recording {
  std::mutex mutex;
  RecordingSettings settings{.mask = NumberOfEnvironment("RECORDING_MASK"),
                             .refused_bits = NumberOfEnvironment("RECORDING_REFUSED_BITS"),
                             .result = static_cast<int>(NumberOfEnvironment("RECORDING_RESULT"))};
  const char* file = std::getenv("RECORDING_FILE");
  std::string first_member;
  int* mask = nullptr;  // of NCCL
  std::ostringstream lines;
  std::string taken;
  std::map<uintptr_t, std::string> kinds;  // of handles
  uintptr_t handles = 0;
  uintptr_t contexts = 0;
  std::thread::id init_thread;
};

Recording& TheRecording() {
  static auto* recording = new Recording;  // callbacks may come until the very end
  return *recording;
}

const char* Text(const char* text) { return text == nullptr ? "NULL" : text; }
uintptr_t Number(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

int64_t NowNs() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t{time.tv_sec} * 1000000000 + time.tv_nsec;
}

const char* KindOf(uint64_t type) {
  switch (type) {
    case 1:
      return "Group";
    case 2:
      return "Coll";
    case 4:
      return "P2p";
    case 8:
      return "ProxyOp";
    case 16:
      return "ProxyStep";
    case 64:
      return "KernelCh";
    case 256:
      return "GroupApi";
    case 512:
      return "CollApi";
    case 1024:
      return "P2pApi";
    case 2048:
      return "KernelLaunch";
    default:
      return "Unexpected";
  }
}

// Fields that only some versions have.
template <typename Event>
void WriteShared(std::ostream& out, const Event& event) {
  if constexpr (requires { event.commHash; })
    out << " hash=" << event.commHash << " name=" << Text(event.name);
  if constexpr (requires { event.seqNumber; }) out << " seq=" << event.seqNumber;
  if constexpr (std::is_integral_v<decltype(event.func)>) {
    out << " func=" << int{event.func} << " datatype=" << int{event.datatype};
  } else {
    out << " func=" << Text(event.func) << " datatype=" << Text(event.datatype);
  }
  out << " count=" << event.count;
  if constexpr (requires { event.root; }) out << " root=" << event.root;
  if constexpr (requires { event.peer; }) out << " peer=" << event.peer;
  if constexpr (requires { event.nChannels; }) out << " channels=" << int{event.nChannels};
  if constexpr (requires { event.nMaxChannels; }) out << " channels=" << int{event.nMaxChannels};
  if constexpr (requires { event.nWarps; }) out << " warps=" << int{event.nWarps};
  if constexpr (requires { event.trafficBytes; }) out << " traffic=" << event.trafficBytes;
  if constexpr (requires { event.parentGroup; }) out << " group=#" << Number(event.parentGroup);
  if constexpr (requires { event.graphCaptured; }) out << " captured=" << event.graphCaptured;
  if constexpr (requires { event.isSymColl; })
    out << " variant=" << Text(event.kernelVariant) << event.isSymColl;
  if constexpr (requires { event.userTag; }) out << " tag=" << event.userTag;
  if constexpr (requires { event.sendBuff; }) {
    out << " buffers=" << (event.sendBuff != nullptr && event.recvBuff != nullptr);
    if constexpr (std::is_integral_v<decltype(event.algo)>) {
      out << " algo=" << int{event.algo} << " proto=" << int{event.proto};
    } else {
      out << " algo=" << Text(event.algo) << " proto=" << Text(event.proto);
    }
  }
}

template <int version, typename Descr>
void WriteFields(std::ostream& out, const Descr& d) {
  const uint64_t type = d.type;
  if (type == 2) WriteShared(out, d.coll);
  if (type == 4) WriteShared(out, d.p2p);
  if (type == 8) {
    const abi::ProxyOpV1& op = d.proxyOp;
    out << " pid=" << op.pid << " channel=" << int{op.channelId} << " peer=" << op.peer
        << " steps=" << op.nSteps << " chunk=" << op.chunkSize << " send=" << op.isSend;
  }
  if (type == 16) {
    // The offset of `step` is the same in all versions; the real plugin's structs have no such
    // event.
    out << " step=" << *reinterpret_cast<const int*>(reinterpret_cast<const char*>(&d) + 24);
  }
  if constexpr (requires { d.kernelCh.channelId; }) {
    if (type == 64) out << " channel=" << int{d.kernelCh.channelId};
    if constexpr (requires { d.kernelCh.pTimer; }) {
      if (type == 64) out << " ptimer=" << d.kernelCh.pTimer;
    }
  }
  if constexpr (requires { d.collApi; }) {
    if (type == 256)
      out << " captured=" << d.groupApi.graphCaptured << " depth=" << d.groupApi.groupDepth;
    if constexpr (version >= 7) {
      if (type == 512) WriteShared(out, *reinterpret_cast<const CollApiV7*>(&d.collApi));
      if (type == 1024) WriteShared(out, *reinterpret_cast<const P2pApiV7*>(&d.p2pApi));
    } else {
      if (type == 512) WriteShared(out, d.collApi);
      if (type == 1024) WriteShared(out, d.p2pApi);
    }
  }
}

[[maybe_unused]] void StoreMask(const Recording& recording, uint32_t mask) {
  if (mask != 0) __atomic_store_n(recording.mask, static_cast<int>(mask), __ATOMIC_RELAXED);
}

char ThreadMark(const Recording& recording) {
  return std::this_thread::get_id() == recording.init_thread ? 'U' : 'T';
}

template <int version, typename Descr>
int Start(void* context, void** handle, Descr* descr) {
  const Descr& d = *descr;
  Recording& r = TheRecording();
  const std::lock_guard lock(r.mutex);
  const bool is_refused = (r.settings.refused_bits & static_cast<uint32_t>(d.type)) != 0;
  *handle = nullptr;
  if (!is_refused) {
    *handle = reinterpret_cast<void*>(++r.handles);
    r.kinds[r.handles] = KindOf(d.type);
  }
  r.lines << ThreadMark(r) << " +" << KindOf(d.type) << " #" << Number(*handle)
          << " context=" << Number(context) << " parent=#" << Number(d.parentObj)
          << " rank=" << d.rank;
  WriteFields<version>(r.lines, d);
  r.lines << " at=" << NowNs() << '\n';
  if constexpr (requires { d.p2pApi; }) {
    if (d.type != 1024) return r.settings.result;
    const bool is_send = std::string_view(d.p2pApi.func) == "Send";
    StoreMask(r, is_send ? r.settings.mask_after_send : r.settings.mask_after_receive);
  }
  return r.settings.result;
}

int Stop(void* handle) {
  Recording& r = TheRecording();
  const std::lock_guard lock(r.mutex);
  r.lines << ThreadMark(r) << " -" << (handle == nullptr ? "NULL" : r.kinds[Number(handle)]) << " #"
          << Number(handle) << " at=" << NowNs() << '\n';
  return r.settings.result;
}

template <int version>
int Record(void* handle, int state, abi::StateArgs* args) {
  Recording& r = TheRecording();
  const std::lock_guard lock(r.mutex);
  r.lines << ThreadMark(r) << " r" << state << ' ' << r.kinds[Number(handle)] << " #"
          << Number(handle);
  if (args == nullptr) {
    r.lines << " args=NULL";
  } else if constexpr (version <= 3) {
    const auto* a = reinterpret_cast<const StateArgsV1*>(args);
    r.lines << " size=" << a->transSize << " steps=" << a->steps;
  } else {
    r.lines << " ptimer=" << args->pTimer;
  }
  r.lines << " at=" << NowNs() << '\n';
  return r.settings.result;
}

int Finalize(void* context) {
  Recording& r = TheRecording();
  const std::lock_guard lock(r.mutex);
  r.lines << "finalize context=" << Number(context) << '\n';
  return 0;
}

// Asks the library that holds `address`, as plugins do.
int VersionOfLibrary(const void* address) {
  Dl_info info{};
  dladdr(address, &info);
  void* library = dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_LAZY);
  if (library == nullptr) return 0;
  int version = 0;
  reinterpret_cast<int (*)(int*)>(dlsym(library, "ncclGetVersion"))(&version);
  dlclose(library);
  return version;
}

void Init(int version, void** context, int* mask, const std::string& identity,
          const std::string& member = "") {
  Recording& r = TheRecording();
  const std::lock_guard lock(r.mutex);
  r.init_thread = std::this_thread::get_id();
  *context = reinterpret_cast<void*>(++r.contexts);
  r.mask = mask;
  __atomic_store_n(mask, static_cast<int>(r.settings.mask), __ATOMIC_RELAXED);
  if (r.first_member.empty()) r.first_member = member;
  r.lines << "init v" << version << identity << " pid=" << getpid()
          << " version=" << VersionOfLibrary(mask) << " at=" << NowNs() << '\n';
}

std::string Identity(uint64_t id, const char* name, int nodes, int ranks, int rank, Logger log) {
  log(5, 1, __FILE__, __LINE__, "init of rank %d", rank);
  std::ostringstream out;
  out << " id=" << id << " name=" << Text(name) << " nodes=" << nodes << " ranks=" << ranks
      << " rank=" << rank;
  return out.str();
}

template <int version>
int InitV1(void** context, int* mask) {
  Init(version, context, mask, "");
  return 0;
}
[[maybe_unused]] int InitV4(void** context, int* mask, const char* name, uint64_t id, int nodes,
                            int ranks, int rank, Logger log) {
  Init(4, context, mask, Identity(id, name, nodes, ranks, rank, log),
       std::to_string(id) + "-" + std::to_string(rank));
  return 0;
}
template <int version>
int InitV5(void** context, uint64_t id, int* mask, const char* name, int nodes, int ranks, int rank,
           Logger log) {
  Init(version, context, mask, Identity(id, name, nodes, ranks, rank, log),
       std::to_string(id) + "-" + std::to_string(rank));
  return 0;
}

template <int version, typename Descr, typename... InitArguments>
abi::Profiler<Descr, InitArguments...> PluginOf(int (*init)(InitArguments...)) {
  return {"recording", init, Start<version, Descr>, Stop, Record<version>, Finalize};
}

}  // namespace
}  // namespace nccl_exporter::sim::recorded

extern "C" {

using namespace nccl_exporter::sim::recorded;
namespace abi = nccl_exporter::abi;

#define RECORDING_EXPORT __attribute__((visibility("default"), used))

#ifndef RECORDING_VERSION  // all
RECORDING_EXPORT auto ncclProfiler_v1 = PluginOf<1, abi::DescriptorV1>(InitV1<1>);
RECORDING_EXPORT auto ncclProfiler_v2 = PluginOf<2, abi::DescriptorV2>(InitV1<2>);
RECORDING_EXPORT auto ncclProfiler_v3 = PluginOf<3, abi::DescriptorV3>(InitV1<3>);
RECORDING_EXPORT auto ncclProfiler_v7 = PluginOf<7, abi::DescriptorV7>(InitV5<7>);
#endif
#if !defined(RECORDING_VERSION) || RECORDING_VERSION == 4
RECORDING_EXPORT auto ncclProfiler_v4 = PluginOf<4, abi::DescriptorV4>(InitV4);
#endif
#if !defined(RECORDING_VERSION) || RECORDING_VERSION == 5
RECORDING_EXPORT auto ncclProfiler_v5 = PluginOf<5, abi::DescriptorV5>(InitV5<5>);
#endif
#if !defined(RECORDING_VERSION) || RECORDING_VERSION == 6
RECORDING_EXPORT auto ncclProfiler_v6 = PluginOf<6, abi::DescriptorV6>(InitV5<6>);
#endif

RECORDING_EXPORT void RecordingConfigure(const RecordingSettings* settings) {
  Recording& r = TheRecording();
  const std::lock_guard lock(r.mutex);
  r.settings = *settings;
  r.lines.str("");
  r.handles = 0;
  r.contexts = 0;
}

RECORDING_EXPORT const char* RecordingTake() {
  Recording& r = TheRecording();
  const std::lock_guard lock(r.mutex);
  r.taken = r.lines.str();
  r.lines.str("");
  return r.taken.c_str();
}

__attribute__((destructor)) void WriteRecording() {
  Recording& r = TheRecording();
  const std::lock_guard lock(r.mutex);
  if (r.file == nullptr || r.first_member.empty()) return;
  std::ofstream(std::string(r.file) + "." + r.first_member) << r.lines.str();
}
}
