// SPDX-License-Identifier: Apache-2.0
// The binary interface between NCCL and a profiler plugin, versions 1 to 7 (NCCL 2.23 to 2.31):
// what NCCL passes in, declared here from the offsets that each release uses. Member names are
// NCCL's, the same in all versions, so that one template serves them all and asks each version what
// it has.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace nccl_exporter::abi {

using Result = int;  // ncclResult_t
inline constexpr Result kSuccess = 0;

// ncclDebugLogger_t: level, flags, file, line, printf format, ...
using Logger = void (*)(int level, unsigned long flags, const char* file, int line,
                        const char* format, ...);
inline constexpr int kLogWarn = 2, kLogInfo = 3;
inline constexpr unsigned long kLogInit = 0x1;

// Bits of the event type and of the activation mask.
inline constexpr uint64_t kGroup = 1, kColl = 2, kP2p = 4, kProxyOp = 8, kProxyStep = 16,
                          kProxyCtrl = 32, kKernelCh = 64, kNetPlugin = 128, kGroupApi = 256,
                          kCollApi = 512, kP2pApi = 1024, kKernelLaunch = 2048, kCeColl = 4096,
                          kCeSync = 8192, kCeBatch = 16384, kKernelPhase = 32768;

// The state that carries what we need: the GPU's time stamp at the end of a kernel channel (API v4
// and later).
inline constexpr int kStateKernelChStop = 22;
// Those of a step of a proxy operation. 8: the step has started; 9 to 12, and 20 (API v4 and
// later).
inline constexpr int kFirstStateProxyStep = 9, kLastStateProxyStep = 12,
                     kStateProxyStepSendPeerWait = 20;
// Those of a proxy operation (API v1 to v3): 0 to 7.
inline constexpr int kLastStateProxyOp = 7;
// Its only state from API v4 on: the network transport has taken it up. Its start event comes when
// it is queued, from all transports, and CollNet stops none (2.30.7 proxy.cc :434, transport/net.cc
// :1315, :1511, transport/coll_net.cc).
inline constexpr int kStateProxyOpInProgress = 19;

// Events. A number behind a name is the first version that has this form. `Word`: a number in v1, a
// text from v2 on.

struct Named {  // by its communicator, which init names from v4 on
  const char* name;
  uint64_t commHash;
};

template <typename Word>
struct CollWords {
  uint64_t seqNumber;
  Word func;
  const void* sendBuff;
  void* recvBuff;
  size_t count;
  int root;
  Word datatype;
};

struct CollV1 : Named, CollWords<uint8_t> {
  uint32_t op;
  size_t trafficBytes;
  uint8_t nMaxChannels, nWarps, algo, proto;
  int isCollnet, isNvls;
};

struct CollV2 : Named, CollWords<const char*> {
  size_t trafficBytes;
  uint8_t nMaxChannels, nWarps;
  const char *algo, *proto;
};

struct CollV3 : Named, CollWords<const char*> {
  uint8_t nMaxChannels, nWarps;
  const char *algo, *proto;
};

struct CollV4 : CollWords<const char*> {
  uint8_t nChannels, nWarps;
  const char *algo, *proto;
};

struct CollV5 : CollV4 {
  void* parentGroup;
};

struct CollV7 : CollV5 {
  const char* kernelVariant;
  bool isSymColl;
  uint64_t userTag;
};

template <typename Word>
struct NamedP2p : Named {
  Word func;
  void* buff;
  Word datatype;
  size_t count;
  int peer;
};

using P2pV1 = NamedP2p<uint8_t>;
using P2pV2 = NamedP2p<const char*>;

struct P2pV4 {
  const char* func;
  void* buff;
  const char* datatype;
  size_t count;
  int peer;
  uint8_t nChannels;
};

struct P2pV5 : P2pV4 {
  void* parentGroup;
};

struct P2pV7 : P2pV5 {
  uint64_t userTag;
};

struct ProxyOpV1 {
  pid_t pid;
  uint8_t channelId;
  int peer, nSteps, chunkSize, isSend;
};

struct ProxyStepV1 {
  int step;
};

struct KernelChV3 {
  uint8_t channelId;
};

struct KernelChV4 {
  uint8_t channelId;
  uint64_t pTimer;  // GPU clock, nanoseconds
};

struct GroupApiV5 {
  bool graphCaptured;
  int groupDepth;
};

struct CollApiV5 {
  const char* func;
  size_t count;
  const char* datatype;
  int root;
  void* stream;
  bool graphCaptured;
};

struct P2pApiV5 {
  const char* func;
  size_t count;
  const char* datatype;
  void* stream;
  bool graphCaptured;
};

using CeCollV6 = CollWords<const char*>;

struct NoEvent {};

template <typename Coll, typename P2p, typename ProxyStep, typename KernelCh>
struct TaskDescriptor {
  uint8_t type;
  void* parentObj;
  int rank;
  union {
    Coll coll;
    P2p p2p;
    ProxyOpV1 proxyOp;
    ProxyStep proxyStep;
    KernelCh kernelCh;
  };
};
using DescriptorV1 = TaskDescriptor<CollV1, P2pV1, NoEvent, NoEvent>;
using DescriptorV2 = TaskDescriptor<CollV2, P2pV2, ProxyStepV1, NoEvent>;
using DescriptorV3 = TaskDescriptor<CollV3, P2pV2, ProxyStepV1, KernelChV3>;
using DescriptorV4 = TaskDescriptor<CollV4, P2pV4, ProxyStepV1, KernelChV4>;

// From v5 on.
template <typename Coll, typename P2p, typename CeColl>
struct CallDescriptor {
  uint64_t type;
  void* parentObj;
  int rank;
  union {
    GroupApiV5 groupApi;
    CollApiV5 collApi;
    P2pApiV5 p2pApi;
    Coll coll;
    P2p p2p;
    ProxyOpV1 proxyOp;
    ProxyStepV1 proxyStep;
    KernelChV4 kernelCh;
    CeColl ceColl;
  };
};
using DescriptorV5 = CallDescriptor<CollV5, P2pV5, NoEvent>;
using DescriptorV6 = CallDescriptor<CollV5, P2pV5, CeCollV6>;
using DescriptorV7 = CallDescriptor<CollV7, P2pV7, CeCollV6>;

// Arguments of a state record; the pointer may be NULL. `pTimer`: KernelChStop (since v4).
// The number of bytes: of proxy steps since v4, of proxy operations up to v3.
// `steps`: of proxy operations up to v3; later arguments end before it.
struct StateArgs {
  union {
    uint64_t pTimer;
    size_t transSize;
  };
  int steps = 0;
};

// The exported object, the same in all versions but for init and the descriptor.
template <typename Descriptor, typename... InitArguments>
struct Profiler {
  const char* name;
  Result (*init)(InitArguments...);
  Result (*startEvent)(void* context, void** eHandle, Descriptor* eDescr);
  Result (*stopEvent)(void* eHandle);
  Result (*recordEventState)(void* eHandle, int eState, StateArgs* eStateArgs);
  Result (*finalize)(void* context);
};

template <typename Descriptor>
using ProfilerV1 = Profiler<Descriptor, void**, int*>;
template <typename Descriptor>
using ProfilerV4 = Profiler<Descriptor, void**, int*, const char*, uint64_t, int, int, int, Logger>;
template <typename Descriptor>
using ProfilerV5 = Profiler<Descriptor, void**, uint64_t, int*, const char*, int, int, int, Logger>;

static_assert(sizeof(ProfilerV1<DescriptorV1>) == 48);

}  // namespace nccl_exporter::abi
