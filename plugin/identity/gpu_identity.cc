// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "plugin/identity/identity.h"

#if NCCL_EXPORTER_HAVE_CUDA
#include <cuda.h>
#endif

namespace nccl_exporter::plugin {
namespace {

// Compared with the CUDA Toolkit's own declarations where they are installed.
#if NCCL_EXPORTER_HAVE_CUDA
static_assert(sizeof(CUuuid) == sizeof(CudaUuid) && sizeof(CUdevice) == sizeof(int) &&
              sizeof(CUresult) == sizeof(int));
static_assert(CUDA_SUCCESS == 0);
#endif

template <typename Call>
void Find(void* driver, const char* name, Call* call) {
  *call = reinterpret_cast<Call>(dlsym(driver, name));
}

bool IsSet(const char* text) { return text != nullptr && text[0] != '\0'; }

// The entry of CUDA's device in CUDA_VISIBLE_DEVICES; nullptr if there is none.
const char* EntryOf(const char* visible_devices, int ordinal) {
  const char* entry = visible_devices;
  for (int i = 0; i < ordinal && entry != nullptr; ++i) {
    entry = std::strchr(entry, ',');
    if (entry != nullptr) ++entry;
  }
  return entry;
}

// The second version has the number of an instance, the first that of its GPU.
bool IsInstance(const CudaDriver& driver, const CudaUuid& uuid, int device,
                const char* visible_devices) {
  const char* entry = EntryOf(visible_devices, device);
  if (entry != nullptr && std::strncmp(entry, "MIG-", 4) == 0) return true;
  CudaUuid of_gpu{};
  return driver.get_uuid_v2 != nullptr && driver.get_uuid != nullptr &&
         driver.get_uuid(&of_gpu, device) == 0 &&
         std::memcmp(of_gpu.bytes, uuid.bytes, sizeof(uuid.bytes)) != 0;
}

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

GpuIdentity AskDriver(const CudaDriver& driver, const char* (*get)(const char* name)) {
  GpuIdentity gpu;
  int device = 0;
  if (driver.get_device == nullptr || driver.get_device(&device) != 0) return gpu;
  const char* visible_devices = get("CUDA_VISIBLE_DEVICES");
  if (SeesAllGpus(get)) gpu.index = NodeIndex(visible_devices, device);

  const auto get_uuid = driver.get_uuid_v2 != nullptr ? driver.get_uuid_v2 : driver.get_uuid;
  CudaUuid uuid{};
  if (get_uuid != nullptr && get_uuid(&uuid, device) == 0) {
    const bool is_instance = IsInstance(driver, uuid, device, visible_devices);
    FormatUuid(is_instance ? "MIG-" : "GPU-", uuid.bytes, gpu.uuid, sizeof(gpu.uuid));
  }
  if (driver.get_pci_bus_id == nullptr ||
      driver.get_pci_bus_id(gpu.pci_bus_id, sizeof(gpu.pci_bus_id), device) != 0) {
    gpu.pci_bus_id[0] = '\0';
  }
  return gpu;
}

GpuIdentity FindGpu(const char* (*get)(const char* name)) {
  void* library = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
  if (library == nullptr) return {};
  CudaDriver driver;
  Find(library, "cuCtxGetDevice", &driver.get_device);
  Find(library, "cuDeviceGetUuid", &driver.get_uuid);
  Find(library, "cuDeviceGetUuid_v2", &driver.get_uuid_v2);
  Find(library, "cuDeviceGetPCIBusId", &driver.get_pci_bus_id);
  const GpuIdentity gpu = AskDriver(driver, get);
  dlclose(library);
  return gpu;
}

bool MayMulticast() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
  if (driver == nullptr) return false;
  const bool may = HasMulticastDevice(driver);
  dlclose(driver);
  return may;
}

bool SeesAllGpus(const char* (*get)(const char* name)) {
  const char* container = get("NVIDIA_VISIBLE_DEVICES");
  const bool is_all = !IsSet(container) || std::strcmp(container, "all") == 0;
  return is_all && !IsSet(get("SLURM_STEP_GPUS")) && !IsSet(get("SLURM_JOB_GPUS"));
}

int NodeIndex(const char* visible_devices, int ordinal) {
  if (visible_devices == nullptr || visible_devices[0] == '\0') return ordinal;
  const char* entry = EntryOf(visible_devices, ordinal);
  if (entry == nullptr) return -1;
  char* end = nullptr;
  const long index = std::strtol(entry, &end, 10);
  const bool is_number =
      end != entry && (*end == ',' || *end == '\0') && index >= 0 && index < 1024;
  return is_number ? static_cast<int>(index) : -1;
}

void FormatUuid(const char* prefix, const unsigned char bytes[16], char* text, int size) {
  const auto* b = bytes;
  std::snprintf(text, static_cast<size_t>(size),
                "%s%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", prefix,
                b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12],
                b[13], b[14], b[15]);
}

}  // namespace nccl_exporter::plugin
