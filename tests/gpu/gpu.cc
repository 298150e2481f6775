// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/gpu.h"

#include <array>
#include <utility>

#include "tests/gpu/nccl_api.h"
#include "tests/gpu/require.h"

namespace nccl_exporter {
namespace {

constexpr size_t kLargestProperties = 8192;  // CUDA 12 and 13 need 1 KiB

}  // namespace

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
  if (!cudaGetDeviceCount.Exists()) return *reason = PathOf(Library::kCudart), 0;
  if (!ncclGetVersion.Exists()) return *reason = PathOf(Library::kNccl), 0;
  const cudaError_t result = cudaGetDeviceCount(&gpus);
  if (result == cudaSuccess && gpus > 0) return gpus;
  *reason = result == cudaSuccess ? "no GPU" : std::string("no GPU: ") + cudaGetErrorString(result);
  return 0;
}

nlohmann::json DescribeMachine(int gpus) {
  int nccl = 0, driver = 0, runtime = 0;
  Require(ncclGetVersion(&nccl), "ncclGetVersion");
  Require(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  Require(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  nlohmann::json names = nlohmann::json::array();
  for (int gpu = 0; gpu < gpus; ++gpu) {
    std::array<char, kLargestProperties> properties{};
    Require(cudaGetDeviceProperties(properties.data(), gpu), "cudaGetDeviceProperties");
    names.push_back(properties.data());
  }
  return {{"nccl", nccl},
          {"driver", driver},
          {"runtime", runtime},
          {"gpus", std::move(names)},
          {"libraries", {PathOf(Library::kNccl), PathOf(Library::kCudart)}}};
}

}  // namespace nccl_exporter
