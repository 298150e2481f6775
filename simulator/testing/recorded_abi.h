// SPDX-License-Identifier: Apache-2.0
// NCCL's profiler descriptors as C structs, so that the compiler, and not the simulator's table, finds the offsets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace nccl_exporter::sim::recorded {

struct ProxyOp {
  int32_t pid;
  uint8_t channelId;
  int peer;
  int nSteps;
  int chunkSize;
  int isSend;
};

namespace v1 {
struct Coll {
  const char* name;
  uint64_t commHash;
  uint64_t seqNumber;
  uint8_t func;
  const void* sendBuff;
  void* recvBuff;
  size_t count;
  int root;
  uint8_t datatype;
  uint32_t op;
  size_t trafficBytes;
  uint8_t nMaxChannels;
  uint8_t nWarps;
  uint8_t algo;
  uint8_t proto;
  int isCollnet;
  int isNvls;
};

struct P2p {
  const char* name;
  uint64_t commHash;
  uint8_t func;
  void* buff;
  uint8_t datatype;
  size_t count;
  int peer;
};

struct Descr {
  static constexpr int kVersion = 1;
  uint8_t type;
  void* parentObj;
  int rank;
  union {
    Coll coll;
    P2p p2p;
    ProxyOp proxyOp;
  };
};
static_assert(sizeof(Descr) == 120);
}  // namespace v1

namespace v2 {
struct P2p {
  const char* name;
  uint64_t commHash;
  const char* func;
  void* buff;
  const char* datatype;
  size_t count;
  int peer;
};

struct Coll {
  const char* name;
  uint64_t commHash;
  uint64_t seqNumber;
  const char* func;
  const void* sendBuff;
  void* recvBuff;
  size_t count;
  int root;
  const char* datatype;
  size_t trafficBytes;
  uint8_t nMaxChannels;
  uint8_t nWarps;
  const char* algo;
  const char* proto;
};

struct Descr {
  static constexpr int kVersion = 2;
  uint8_t type;
  void* parentObj;
  int rank;
  union {
    Coll coll;
    P2p p2p;
    ProxyOp proxyOp;
  };
};
static_assert(sizeof(Descr) == 128);
}  // namespace v2

namespace v3 {
struct Coll {
  const char* name;
  uint64_t commHash;
  uint64_t seqNumber;
  const char* func;
  const void* sendBuff;
  void* recvBuff;
  size_t count;
  int root;
  const char* datatype;
  uint8_t nMaxChannels;
  uint8_t nWarps;
  const char* algo;
  const char* proto;
};

struct KernelCh {
  uint8_t channelId;
};

struct Descr {
  static constexpr int kVersion = 3;
  uint8_t type;
  void* parentObj;
  int rank;
  union {
    Coll coll;
    v2::P2p p2p;
    ProxyOp proxyOp;
    KernelCh kernelCh;
  };
};
static_assert(sizeof(Descr) == 120);
}  // namespace v3

namespace v4 {
struct Coll {
  uint64_t seqNumber;
  const char* func;
  const void* sendBuff;
  void* recvBuff;
  size_t count;
  int root;
  const char* datatype;
  uint8_t nChannels;
  uint8_t nWarps;
  const char* algo;
  const char* proto;
};

struct P2p {
  const char* func;
  void* buff;
  const char* datatype;
  size_t count;
  int peer;
  uint8_t nChannels;
};

struct KernelCh {
  uint8_t channelId;
  uint64_t pTimer;
};

struct Descr {
  static constexpr int kVersion = 4;
  uint8_t type;
  void* parentObj;
  int rank;
  union {
    Coll coll;
    P2p p2p;
    ProxyOp proxyOp;
    KernelCh kernelCh;
  };
};
static_assert(sizeof(Descr) == 104);
}  // namespace v4

namespace v5 {
struct GroupApi {
  bool graphCaptured;
  int groupDepth;
};

struct CollApi {
  const char* func;
  size_t count;
  const char* datatype;
  int root;
  void* stream;
  bool graphCaptured;
};

struct P2pApi {
  const char* func;
  size_t count;
  const char* datatype;
  void* stream;
  bool graphCaptured;
};

struct KernelLaunch {
  void* stream;
};

struct Coll {
  uint64_t seqNumber;
  const char* func;
  const void* sendBuff;
  void* recvBuff;
  size_t count;
  int root;
  const char* datatype;
  uint8_t nChannels;
  uint8_t nWarps;
  const char* algo;
  const char* proto;
  void* parentGroup;
};

struct P2p {
  const char* func;
  void* buff;
  const char* datatype;
  size_t count;
  int peer;
  uint8_t nChannels;
  void* parentGroup;
};
template <int version>
struct DescrOf {
  static constexpr int kVersion = version;
  uint64_t type;
  void* parentObj;
  int rank;
  union {
    GroupApi groupApi;
    CollApi collApi;
    P2pApi p2pApi;
    KernelLaunch kernelLaunch;
    Coll coll;
    P2p p2p;
    ProxyOp proxyOp;
    v4::KernelCh kernelCh;
  };
};
using Descr = DescrOf<5>;
static_assert(sizeof(Descr) == 112);
}  // namespace v5

namespace v6 {
using Descr = v5::DescrOf<6>;  // copy-engine events are not larger
static_assert(sizeof(Descr) == 112);
}  // namespace v6

namespace v7 {
struct CollApi {
  const char* func;
  size_t count;
  const char* datatype;
  int root;
  void* stream;
  bool graphCaptured;
  uint64_t userTag;
};

struct P2pApi {
  const char* func;
  size_t count;
  const char* datatype;
  void* stream;
  bool graphCaptured;
  uint64_t userTag;
};

struct Coll {
  uint64_t seqNumber;
  const char* func;
  const void* sendBuff;
  void* recvBuff;
  size_t count;
  int root;
  const char* datatype;
  uint8_t nChannels;
  uint8_t nWarps;
  const char* algo;
  const char* proto;
  void* parentGroup;
  const char* kernelVariant;
  bool isSymColl;
  uint64_t userTag;
};

struct P2p {
  const char* func;
  void* buff;
  const char* datatype;
  size_t count;
  int peer;
  uint8_t nChannels;
  void* parentGroup;
  uint64_t userTag;
};

struct Descr {
  static constexpr int kVersion = 7;
  uint64_t type;
  void* parentObj;
  int rank;
  union {
    v5::GroupApi groupApi;
    CollApi collApi;
    P2pApi p2pApi;
    v5::KernelLaunch kernelLaunch;
    Coll coll;
    P2p p2p;
    ProxyOp proxyOp;
    v4::KernelCh kernelCh;
  };
};
static_assert(sizeof(Descr) == 136);
}  // namespace v7

// State arguments.
struct ArgsV1 {
  size_t transSize;
  int steps;
};
union ArgsV4 {
  size_t transSize;
  uint64_t pTimer;
};

// The exported object.
struct Plugin {
  const char* name;
  void* init;
  int (*startEvent)(void* context, void** handle, void* descr);
  int (*stopEvent)(void* handle);
  int (*recordEventState)(void* handle, int state, void* args);
  int (*finalize)(void* context);
};

}  // namespace nccl_exporter::sim::recorded
