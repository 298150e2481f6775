// SPDX-License-Identifier: Apache-2.0
// The simulated libcuda.so.1: the few functions of CUDA's driver by which a plugin finds the GPU of
// the calling thread.
#include <atomic>
#include <cstdint>
#include <cstdio>

#include "simulator/workload/hash_random.h"

namespace {

constexpr int kSuccess = 0;
constexpr int kErrorInvalidValue = 1;
constexpr int kErrorInvalidDevice = 101;
constexpr int kErrorInvalidContext = 201;
constexpr int kMostDevices = 64;

// A thread without a context, such as a CUDA host function's, has no device.
thread_local int current_device = -1;
std::atomic<int> node_number;

struct Uuid {
  unsigned char bytes[16];
};

bool IsDevice(int device) { return device >= 0 && device < kMostDevices; }

}  // namespace

#define CUDA_SIM_EXPORT __attribute__((visibility("default")))

extern "C" {

CUDA_SIM_EXPORT void CudaSimSetDevice(int node, int device) {
  node_number = node;
  current_device = device;
}

CUDA_SIM_EXPORT int cuInit(unsigned int) { return kSuccess; }

CUDA_SIM_EXPORT int cuDriverGetVersion(int* version) {
  *version = 12080;
  return kSuccess;
}

CUDA_SIM_EXPORT int cuDeviceGetCount(int* count) {
  *count = kMostDevices;
  return kSuccess;
}

CUDA_SIM_EXPORT int cuDeviceGet(int* device, int ordinal) {
  if (!IsDevice(ordinal)) return kErrorInvalidDevice;
  *device = ordinal;
  return kSuccess;
}

CUDA_SIM_EXPORT int cuCtxGetDevice(int* device) {
  if (current_device < 0) return kErrorInvalidContext;
  *device = current_device;
  return kSuccess;
}

CUDA_SIM_EXPORT int cuDeviceGetUuid(Uuid* uuid, int device) {
  if (!IsDevice(device)) return kErrorInvalidDevice;
  for (int half = 0; half < 2; ++half) {
    const uint64_t bits =
        nccl_exporter::sim::HashRandom(0x4750552d, node_number.load(), device, half);
    for (int i = 0; i < 8; ++i)
      uuid->bytes[8 * half + i] = static_cast<unsigned char>(bits >> (8 * i));
  }
  return kSuccess;
}

CUDA_SIM_EXPORT int cuDeviceGetUuid_v2(Uuid* uuid, int device) {
  return cuDeviceGetUuid(uuid, device);
}

CUDA_SIM_EXPORT int cuDeviceGetPCIBusId(char* text, int length, int device) {
  if (!IsDevice(device)) return kErrorInvalidDevice;
  if (length < 13) return kErrorInvalidValue;
  snprintf(text, static_cast<size_t>(length), "0000:%02x:00.0", 0x10 + device);
  return kSuccess;
}
}
