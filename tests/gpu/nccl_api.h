// SPDX-License-Identifier: Apache-2.0
// The part of NCCL that the jobs use. Names, values and layouts are NCCL's, the same from 2.23 on.
#pragma once

#include <climits>

#include "tests/gpu/cuda_api.h"

namespace nccl_exporter {

enum ncclResult_t : int { ncclSuccess = 0, ncclInvalidUsage = 5 };
enum ncclDataType_t : int {
  ncclInt8,
  ncclUint8,
  ncclInt32,
  ncclUint32,
  ncclInt64,
  ncclUint64,
  ncclFloat16,
  ncclFloat32,
  ncclFloat64,
  ncclBfloat16
};
enum ncclRedOp_t : int { ncclSum };
using ncclComm_t = struct ncclComm*;
struct ncclUniqueId {
  char internal[128];
};

// That of 2.27, the first with a name. Older releases read the beginning of it, and later ones take
// their defaults for what they have added.
struct ncclConfig_t {
  size_t size = sizeof(ncclConfig_t);
  unsigned magic = 0xcafebeef;
  unsigned version = 22700;
  int blocking = INT_MIN;
  int cgaClusterSize = INT_MIN;
  int minCTAs = INT_MIN;
  int maxCTAs = INT_MIN;
  const char* netName = nullptr;
  int splitShare = INT_MIN;
  int trafficClass = INT_MIN;
  const char* commName = nullptr;
  int collnetEnable = INT_MIN;
  int CTAPolicy = INT_MIN;
  int shrinkShare = INT_MIN;
  int nvlsCTAs = INT_MIN;
};

#define NCCL_FUNCTION(name, ...) \
  inline const DynamicFunction<ncclResult_t(__VA_ARGS__)> name { Library::kNccl, #name }

inline const DynamicFunction<const char*(ncclComm_t)> ncclGetLastError{Library::kNccl,
                                                                       "ncclGetLastError"};
NCCL_FUNCTION(ncclGetVersion, int*);
NCCL_FUNCTION(ncclGetUniqueId, ncclUniqueId*);
NCCL_FUNCTION(ncclCommInitRank, ncclComm_t*, int, ncclUniqueId, int);
NCCL_FUNCTION(ncclCommInitRankConfig, ncclComm_t*, int, ncclUniqueId, int, ncclConfig_t*);
NCCL_FUNCTION(ncclCommSplit, ncclComm_t, int, int, ncclComm_t*, ncclConfig_t*);
NCCL_FUNCTION(ncclCommCount, ncclComm_t, int*);
NCCL_FUNCTION(ncclCommUserRank, ncclComm_t, int*);
NCCL_FUNCTION(ncclCommDestroy, ncclComm_t);
NCCL_FUNCTION(ncclCommAbort, ncclComm_t);
NCCL_FUNCTION(ncclGroupStart);
NCCL_FUNCTION(ncclGroupEnd);
NCCL_FUNCTION(ncclBroadcast, const void*, void*, size_t, ncclDataType_t, int, ncclComm_t,
              cudaStream_t);
NCCL_FUNCTION(ncclReduce, const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t,
              cudaStream_t);
NCCL_FUNCTION(ncclAllGather, const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t);
NCCL_FUNCTION(ncclReduceScatter, const void*, void*, size_t, ncclDataType_t, ncclRedOp_t,
              ncclComm_t, cudaStream_t);
NCCL_FUNCTION(ncclAllReduce, const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
              cudaStream_t);
NCCL_FUNCTION(ncclSend, const void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
NCCL_FUNCTION(ncclRecv, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
// From 2.28 on.
NCCL_FUNCTION(ncclAlltoAll, const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t);
NCCL_FUNCTION(ncclGather, const void*, void*, size_t, ncclDataType_t, int, ncclComm_t,
              cudaStream_t);
NCCL_FUNCTION(ncclScatter, const void*, void*, size_t, ncclDataType_t, int, ncclComm_t,
              cudaStream_t);

#undef NCCL_FUNCTION

}  // namespace nccl_exporter
