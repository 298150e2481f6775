// SPDX-License-Identifier: Apache-2.0
#include "plugin/identity/gpu_multicast.h"

#include <dlfcn.h>

#include "plugin/oldest_glibc.h"

#if NCCL_EXPORTER_HAVE_CUDA
#include <cuda.h>
#endif

namespace nccl_exporter::plugin {
namespace {

// CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, which CUDA before 12.1 lacks.
constexpr int kMulticastSupported = 132;
#if NCCL_EXPORTER_HAVE_CUDA && CUDA_VERSION >= 12010
static_assert(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED == kMulticastSupported);
#endif

bool HasMulticastDevice(void* driver) {
  const auto count = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  const auto device_of = reinterpret_cast<int (*)(int*, int)>(dlsym(driver, "cuDeviceGet"));
  const auto attribute =
      reinterpret_cast<int (*)(int*, int, int)>(dlsym(driver, "cuDeviceGetAttribute"));
  int devices = 0;
  if (count == nullptr || device_of == nullptr || attribute == nullptr || count(&devices) != 0)
    return false;
  for (int ordinal = 0; ordinal < devices; ++ordinal) {
    int device = 0, is_supported = 0;
    if (device_of(&device, ordinal) == 0 &&
        attribute(&is_supported, kMulticastSupported, device) == 0 && is_supported != 0)
      return true;
  }
  return false;
}

}  // namespace

bool MayMulticast() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
  if (driver == nullptr) return false;
  const bool may = HasMulticastDevice(driver);
  dlclose(driver);
  return may;
}

}  // namespace nccl_exporter::plugin
