// SPDX-License-Identifier: Apache-2.0
// The stand-in for CUDA's driver, loaded under the name by which a plugin looks for the real one.
#pragma once

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

}  // namespace nccl_exporter::sim
