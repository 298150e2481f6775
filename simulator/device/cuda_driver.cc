// SPDX-License-Identifier: Apache-2.0
#include "simulator/device/cuda_driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace nccl_exporter::sim {

std::unique_ptr<CudaDriver> CudaDriver::Load(const std::string& path, std::string& error) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    error = dlerror();
    return nullptr;
  }
  const auto set_device = reinterpret_cast<SetDeviceFunction>(dlsym(library, "CudaSimSetDevice"));
  const auto uuid = reinterpret_cast<UuidFunction>(dlsym(library, "cuDeviceGetUuid"));
  if (set_device == nullptr || uuid == nullptr) {
    error = path + " is not the simulator's CUDA driver";
    return nullptr;
  }
  return std::unique_ptr<CudaDriver>(new CudaDriver(set_device, uuid));
}

std::string CudaDriver::Uuid(int device) const {
  unsigned char bytes[16];
  if (uuid_(bytes, device) != 0) return "";
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", bytes[i]);
  }
  return text;
}

}  // namespace nccl_exporter::sim
