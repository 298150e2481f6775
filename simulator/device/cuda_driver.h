// SPDX-License-Identifier: Apache-2.0
// The simulated CUDA driver, loaded under the name by which a plugin looks for the real one.
#pragma once

#include <dlfcn.h>
#include <fmt/format.h>

#include <memory>
#include <string>

namespace nccl_exporter::sim {

class CudaDriver {
 public:
  static constexpr const char* kFile = "libcuda-sim.so";

  // nullptr, with a reason, if the library cannot be loaded or is not ours.
  static std::unique_ptr<CudaDriver> Load(const std::string& path, std::string& error);

  // Makes that GPU of that node the calling thread's current one.
  void SetDevice(int node, int device) const { set_device_(node, device); }
  // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", of a device of the node that SetDevice was last
  // called with.
  std::string Uuid(int device) const;

 private:
  using SetDeviceFunction = void (*)(int node, int device);
  using UuidFunction = int (*)(unsigned char* uuid, int device);
  CudaDriver(SetDeviceFunction set_device, UuidFunction uuid)
      : set_device_(set_device), uuid_(uuid) {}

  SetDeviceFunction set_device_;
  UuidFunction uuid_;
};

inline std::unique_ptr<CudaDriver> CudaDriver::Load(const std::string& path, std::string& error) {
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

inline std::string CudaDriver::Uuid(int device) const {
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
