// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/gpu.h"

#include <nccl.h>

#include "tests/gpu/require.h"

namespace nccl_exporter {

Gpu::Gpu(int rank, size_t buffer_bytes) : buffer_bytes_(buffer_bytes) {
  int gpus = 0;
  Require(cudaGetDeviceCount(&gpus), "cudaGetDeviceCount");
  Require(cudaSetDevice(rank % gpus), "cudaSetDevice");
  // Waiting takes no CPU time, so that what is left is NCCL's and the plugin's.
  Require(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync), "cudaSetDeviceFlags");
  Require(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  Require(cudaMalloc(&send_, buffer_bytes), "cudaMalloc");
  Require(cudaMalloc(&receive_, buffer_bytes), "cudaMalloc");
  Require(cudaMemset(send_, 0, buffer_bytes), "cudaMemset");
  Require(cudaMemset(receive_, 0, buffer_bytes), "cudaMemset");
  Require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

void Gpu::Synchronize() const { Require(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

int CountGpus(std::string* reason) {
  int gpus = 0;
  const cudaError_t result = cudaGetDeviceCount(&gpus);
  if (result == cudaSuccess && gpus > 0) return gpus;
  *reason = result == cudaSuccess ? "no GPU" : std::string("no GPU: ") + cudaGetErrorString(result);
  return 0;
}

std::string DescribeMachine(int gpus) {
  int nccl = 0, driver = 0;
  cudaDeviceProp properties{};
  Require(ncclGetVersion(&nccl), "ncclGetVersion");
  Require(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  Require(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  return "NCCL " + std::to_string(nccl / 10000) + "." + std::to_string(nccl / 100 % 100) + "." +
         std::to_string(nccl % 100) + ", CUDA driver " + std::to_string(driver / 1000) + "." +
         std::to_string(driver % 1000 / 10) + ", " + std::to_string(gpus) + " x " + properties.name;
}

}  // namespace nccl_exporter
