// SPDX-License-Identifier: Apache-2.0
#include "plugin/identity/gpu_identity.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "plugin/oldest_glibc.h"

#if NCCL_EXPORTER_HAVE_CUDA
#include <cuda.h>
#endif

namespace nccl_exporter::plugin {
namespace {

// The driver API as far as it is used here; compared with the CUDA Toolkit's own declarations where
// they are installed.
struct Uuid {
  unsigned char bytes[16];
};
using GetDevice = int (*)(int* device);
using GetUuid = int (*)(Uuid* uuid, int device);
using GetPciBusId = int (*)(char* text, int size, int device);

#if NCCL_EXPORTER_HAVE_CUDA
static_assert(sizeof(CUuuid) == sizeof(Uuid) && sizeof(CUdevice) == sizeof(int) &&
              sizeof(CUresult) == sizeof(int));
static_assert(CUDA_SUCCESS == 0);
#endif

template <typename Call>
Call Find(void* driver, const char* name) {
  return reinterpret_cast<Call>(dlsym(driver, name));
}

void AskDriver(void* driver, const char* visible_devices, GpuIdentity* gpu) {
  const auto get_device = Find<GetDevice>(driver, "cuCtxGetDevice");
  int device = 0;
  if (get_device == nullptr || get_device(&device) != 0) return;
  gpu->index = NodeIndex(visible_devices, device);

  auto get_uuid = Find<GetUuid>(driver, "cuDeviceGetUuid_v2");  // tells MIG instances apart
  if (get_uuid == nullptr) get_uuid = Find<GetUuid>(driver, "cuDeviceGetUuid");
  Uuid uuid{};
  if (get_uuid != nullptr && get_uuid(&uuid, device) == 0)
    FormatUuid(uuid.bytes, gpu->uuid, sizeof(gpu->uuid));

  const auto get_pci_bus_id = Find<GetPciBusId>(driver, "cuDeviceGetPCIBusId");
  if (get_pci_bus_id == nullptr ||
      get_pci_bus_id(gpu->pci_bus_id, sizeof(gpu->pci_bus_id), device) != 0) {
    gpu->pci_bus_id[0] = '\0';
  }
}

}  // namespace

GpuIdentity FindGpu(const char* visible_devices) {
  GpuIdentity gpu;
  if (void* driver = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY)) {
    AskDriver(driver, visible_devices, &gpu);
    dlclose(driver);
  }
  return gpu;
}

int NodeIndex(const char* visible_devices, int ordinal) {
  if (visible_devices == nullptr || visible_devices[0] == '\0') return ordinal;
  const char* entry = visible_devices;
  for (int i = 0; i < ordinal; ++i) {
    entry = std::strchr(entry, ',');
    if (entry == nullptr) return -1;
    ++entry;
  }
  char* end = nullptr;
  const long index = std::strtol(entry, &end, 10);
  const bool is_number =
      end != entry && (*end == ',' || *end == '\0') && index >= 0 && index < 1024;
  return is_number ? static_cast<int>(index) : -1;
}

void FormatUuid(const unsigned char bytes[16], char* text, int size) {
  const auto* b = bytes;
  std::snprintf(text, static_cast<size_t>(size),
                "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
                b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
                b[14], b[15]);
}

}  // namespace nccl_exporter::plugin
