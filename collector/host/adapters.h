// SPDX-License-Identifier: Apache-2.0
// Adapters, the node's network adapters and which of them are nearest to a GPU, as sysfs has them.
// Reads the adapters once, when it is made. For any thread.
#pragma once

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "collector/host/proc_text.h"

namespace nccl_exporter::collector {

class Adapters {
 public:
  // `sys` is /sys. Adapters are the InfiniBand devices (RoCE included) or, on a node without, the
  // Ethernet devices that are hardware.
  explicit Adapters(std::string sys) : sys_(std::move(sys)) {
    Add("infiniband");
    if (adapters_.empty()) Add("net");
  }

  // Whether a device for verbs has a port with a link.
  bool HasVerbs() const { return has_verbs_; }

  // The adapter that shares the longest part of the path on the PCI bus with this device, or else
  // its NUMA node: "mlx5_3". Two that are equally near: "mlx5_0,mlx5_1". Empty where more are, or
  // all of several, as in most virtual machines.
  std::string NearestTo(std::string address) const {
    // CUDA writes large letters, the kernel small ones.
    for (char& c : address) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (address.empty() || address.find('/') != std::string::npos) return "";
    const Device gpu = DeviceAt(sys_ + "/bus/pci/devices/" + address);
    size_t best = 1, count = 0;
    std::string names;
    for (const Device& adapter : adapters_) {
      const size_t nearness = Nearness(gpu, adapter);
      if (nearness < best) continue;
      if (nearness > best) names.clear(), count = 0;
      best = nearness;
      names += (count++ == 0 ? "" : ",") + adapter.name;
    }
    return count > 2 || (count == 2 && adapters_.size() == 2) ? "" : names;
  }

 private:
  struct Device {
    std::string name = {};
    std::vector<std::string> path = {};  // from the host bridge on
    std::string numa_node = {};          // empty: not known
  };

  // Devices without hardware have no entry `device`.
  void Add(const std::string& kind) {
    for (const std::string& name : NamesIn(sys_ + "/class/" + kind)) {
      const std::string folder = sys_ + "/class/" + kind + '/' + name;
      Device adapter = DeviceAt(folder + "/device");
      if (adapter.path.empty()) continue;
      adapter.name = name;
      adapters_.push_back(std::move(adapter));
      for (const std::string& port : NamesIn(folder + "/ports"))
        has_verbs_ |= ReadProcFile(folder + "/ports/" + port + "/state").ends_with("ACTIVE\n");
    }
  }

  // A device is below its host bridge: /sys/devices/pci0000:15/0000:15:01.0/0000:18:00.0.
  static Device DeviceAt(const std::string& folder) {
    std::error_code error;
    Device device;
    for (const auto& part : std::filesystem::canonical(folder, error)) {
      if (!device.path.empty() || part.string().starts_with("pci")) device.path.push_back(part);
    }
    device.numa_node = ReadProcFile(folder + "/numa_node");
    if (device.numa_node.starts_with('-')) device.numa_node.clear();
    return device;
  }

  static size_t Nearness(const Device& one, const Device& other) {
    const auto parting = std::ranges::mismatch(one.path, other.path).in1;
    const auto common = static_cast<size_t>(parting - one.path.begin());
    return common != 0 ? 1 + common : !one.numa_node.empty() && one.numa_node == other.numa_node;
  }

  const std::string sys_;
  std::vector<Device> adapters_;
  bool has_verbs_ = false;
};

}  // namespace nccl_exporter::collector
