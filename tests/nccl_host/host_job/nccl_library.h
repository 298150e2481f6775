// SPDX-License-Identifier: Apache-2.0
// Functions of NCCL and of CUDA's runtime, found by name at run time: no header of theirs is
// needed. Declarations are those of nccl.h 2.23 to 2.31 and of CUDA 13. For any thread.
#pragma once

#include <climits>
#include <cstddef>

namespace nccl_exporter::host_job {

using Communicator = struct ncclComm*;
using Stream = struct CUstream_st*;
using Graph = struct CUgraph_st*;
using GraphExecutable = struct CUgraphExec_st*;

// Passed by value, as NCCL does.
struct UniqueId {
  char bytes[128];
};

// The fields of ncclConfig_t up to 2.27. A later NCCL gives the others their defaults.
struct CommunicatorConfig {
  size_t size = sizeof(CommunicatorConfig);
  unsigned magic = 0xcafebeef, version = 22700;
  int blocking = INT_MIN, cga_cluster_size = INT_MIN, least_ctas = INT_MIN, most_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN, traffic_class = INT_MIN;
  const char* name = nullptr;  // to be kept by the caller
  int collnet = INT_MIN, cta_policy = INT_MIN, shrink_share = INT_MIN, nvls_ctas = INT_MIN;
};

constexpr int kFloat = 7, kSum = 0;  // ncclDataType_t, ncclRedOp_t
constexpr int kNoColor = -1;         // of ncclCommSplit
constexpr int kShrinkAbort = 1;      // flag of ncclCommShrink
constexpr int kSuspendMemory = 1;    // flag of ncclCommSuspend

// Address of a function, of any type.
struct Symbol {
  template <typename Function>
  operator Function*() const {
    return reinterpret_cast<Function*>(address);
  }
  void* address;
};
// In libnccl.so.2 or libcudart.so.13. Found() ends the program where it is missing.
Symbol Found(const char* name);
Symbol FoundIfThere(const char* name);

struct Nccl {
  int (*GetUniqueId)(UniqueId*) = Found("ncclGetUniqueId");
  int (*CommInitRankConfig)(Communicator*, int, UniqueId, int,
                            CommunicatorConfig*) = Found("ncclCommInitRankConfig");
  int (*CommSplit)(Communicator, int, int, Communicator*,
                   CommunicatorConfig*) = Found("ncclCommSplit");
  int (*CommFinalize)(Communicator) = Found("ncclCommFinalize");
  int (*CommDestroy)(Communicator) = Found("ncclCommDestroy");
  int (*CommAbort)(Communicator) = Found("ncclCommAbort");
  int (*GroupStart)() = Found("ncclGroupStart");
  int (*GroupEnd)() = Found("ncclGroupEnd");
  int (*AllReduce)(const void*, void*, size_t, int, int, Communicator,
                   Stream) = Found("ncclAllReduce");
  int (*ReduceScatter)(const void*, void*, size_t, int, int, Communicator,
                       Stream) = Found("ncclReduceScatter");
  int (*Reduce)(const void*, void*, size_t, int, int, int, Communicator,
                Stream) = Found("ncclReduce");
  int (*AllGather)(const void*, void*, size_t, int, Communicator, Stream) = Found("ncclAllGather");
  int (*Broadcast)(const void*, void*, size_t, int, int, Communicator,
                   Stream) = Found("ncclBroadcast");
  int (*Send)(const void*, size_t, int, int, Communicator, Stream) = Found("ncclSend");
  int (*Recv)(void*, size_t, int, int, Communicator, Stream) = Found("ncclRecv");
  // Null where the release has none.
  int (*AlltoAll)(const void*, void*, size_t, int, Communicator,
                  Stream) = FoundIfThere("ncclAlltoAll");
  int (*CommShrink)(Communicator, int*, int, Communicator*, CommunicatorConfig*,
                    int) = FoundIfThere("ncclCommShrink");
  int (*CommRevoke)(Communicator, int) = FoundIfThere("ncclCommRevoke");
  int (*CommSuspend)(Communicator, int) = FoundIfThere("ncclCommSuspend");
  int (*CommResume)(Communicator) = FoundIfThere("ncclCommResume");
  int (*CommGetUniqueId)(Communicator, UniqueId*) = FoundIfThere("ncclCommGetUniqueId");
  int (*CommGrow)(Communicator, int, const UniqueId*, int, Communicator*,
                  CommunicatorConfig*) = FoundIfThere("ncclCommGrow");
  const char* (*GetLastError)(Communicator) = Found("ncclGetLastError");
};

struct Cuda {
  int (*SetDevice)(int) = Found("cudaSetDevice");
  int (*StreamCreateWithFlags)(Stream*, unsigned) = Found("cudaStreamCreateWithFlags");
  int (*StreamSynchronize)(Stream) = Found("cudaStreamSynchronize");
  int (*Malloc)(void**, size_t) = Found("cudaMalloc");
  int (*StreamBeginCapture)(Stream, int) = Found("cudaStreamBeginCapture");
  int (*StreamEndCapture)(Stream, Graph*) = Found("cudaStreamEndCapture");
  int (*GraphInstantiate)(GraphExecutable*, Graph,
                          unsigned long long) = Found("cudaGraphInstantiate");
  int (*GraphLaunch)(GraphExecutable, Stream) = Found("cudaGraphLaunch");
  int (*GraphDestroy)(Graph) = Found("cudaGraphDestroy");
  int (*GraphExecDestroy)(GraphExecutable) = Found("cudaGraphExecDestroy");
  // Null but on a rig: occupies the stream for so many microseconds.
  void (*ComputeUs)(Stream, double) = FoundIfThere("fakecudaComputeUs");
};

// The libraries are loaded by the first call, which must come after the fork of a rank's process.
const Nccl& NcclLibrary();
const Cuda& CudaLibrary();

// Ends the program with a line on standard error unless `result` is 0; `what` names the call. The
// rank's peers do not wait: they are ended with it.
void Require(int result, const char* what);

}  // namespace nccl_exporter::host_job
