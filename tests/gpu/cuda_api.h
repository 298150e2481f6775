// SPDX-License-Identifier: Apache-2.0
// The part of CUDA that the jobs use. Names, values and layouts are those of CUDA 12 and 13.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/gpu/dynamic_function.h"

namespace nccl_exporter {

enum cudaError_t : int { cudaSuccess = 0, cudaErrorNotReady = 600 };
using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
using cudaGraph_t = struct CUgraph_st*;
using cudaGraphExec_t = struct CUgraphExec_st*;
using cublasHandle_t = struct cublasContext*;

inline constexpr unsigned cudaStreamNonBlocking = 1, cudaDeviceScheduleBlockingSync = 4,
                          cudaEventDisableTiming = 2, cudaHostAllocMapped = 2;
inline constexpr int cudaStreamCaptureModeThreadLocal = 1, cudaMemcpyDeviceToDevice = 3,
                     cublasNoTranspose = 0;

#define CUDA_FUNCTION(library, name, ...) \
  inline const DynamicFunction<__VA_ARGS__> name { Library::library, #name }

CUDA_FUNCTION(kCudart, cudaGetErrorString, const char*(cudaError_t));
CUDA_FUNCTION(kCudart, cudaGetDeviceCount, cudaError_t(int*));
// Fills a structure whose size depends on the release, and which begins with the name.
CUDA_FUNCTION(kCudart, cudaGetDeviceProperties, cudaError_t(void*, int));
CUDA_FUNCTION(kCudart, cudaDriverGetVersion, cudaError_t(int*));
CUDA_FUNCTION(kCudart, cudaRuntimeGetVersion, cudaError_t(int*));
CUDA_FUNCTION(kCudart, cudaSetDevice, cudaError_t(int));
CUDA_FUNCTION(kCudart, cudaSetDeviceFlags, cudaError_t(unsigned));
CUDA_FUNCTION(kCudart, cudaDeviceSynchronize, cudaError_t());
CUDA_FUNCTION(kCudart, cudaMalloc, cudaError_t(void**, size_t));
CUDA_FUNCTION(kCudart, cudaHostAlloc, cudaError_t(void**, size_t, unsigned));
CUDA_FUNCTION(kCudart, cudaMemset, cudaError_t(void*, int, size_t));
CUDA_FUNCTION(kCudart, cudaMemcpyAsync, cudaError_t(void*, const void*, size_t, int, cudaStream_t));
CUDA_FUNCTION(kCudart, cudaStreamCreateWithFlags, cudaError_t(cudaStream_t*, unsigned));
CUDA_FUNCTION(kCudart, cudaStreamSynchronize, cudaError_t(cudaStream_t));
CUDA_FUNCTION(kCudart, cudaStreamQuery, cudaError_t(cudaStream_t));
CUDA_FUNCTION(kCudart, cudaStreamBeginCapture, cudaError_t(cudaStream_t, int));
CUDA_FUNCTION(kCudart, cudaStreamEndCapture, cudaError_t(cudaStream_t, cudaGraph_t*));
CUDA_FUNCTION(kCudart, cudaGraphInstantiate,
              cudaError_t(cudaGraphExec_t*, cudaGraph_t, unsigned long long));
CUDA_FUNCTION(kCudart, cudaGraphLaunch, cudaError_t(cudaGraphExec_t, cudaStream_t));
CUDA_FUNCTION(kCudart, cudaGraphExecDestroy, cudaError_t(cudaGraphExec_t));
CUDA_FUNCTION(kCudart, cudaGraphDestroy, cudaError_t(cudaGraph_t));
CUDA_FUNCTION(kCudart, cudaEventCreateWithFlags, cudaError_t(cudaEvent_t*, unsigned));
CUDA_FUNCTION(kCudart, cudaEventRecord, cudaError_t(cudaEvent_t, cudaStream_t));
CUDA_FUNCTION(kCudart, cudaEventElapsedTime, cudaError_t(float*, cudaEvent_t, cudaEvent_t));
CUDA_FUNCTION(kCudart, cudaEventDestroy, cudaError_t(cudaEvent_t));

// The driver's functions are handed out by this one.
CUDA_FUNCTION(kCuda, cuGetProcAddress_v2, int(const char*, void**, int, uint64_t, int*));

CUDA_FUNCTION(kCublas, cublasCreate_v2, int(cublasHandle_t*));
CUDA_FUNCTION(kCublas, cublasSetStream_v2, int(cublasHandle_t, cudaStream_t));
CUDA_FUNCTION(kCublas, cublasSgemm_v2,
              int(cublasHandle_t, int, int, int, int, int, const float*, const float*, int,
                  const float*, int, const float*, float*, int));

#undef CUDA_FUNCTION

}  // namespace nccl_exporter
