// SPDX-License-Identifier: Apache-2.0
#include "collector/gpu_numbers.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <vector>

namespace nccl_exporter::collector {
namespace {

// In order; empty if there is no such driver.
std::vector<uint64_t> AddressesIn(const std::string& directory) {
  std::vector<uint64_t> addresses;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    if (const auto address = PciAddress(entry->path().filename().string()))
      addresses.push_back(*address);
  }
  std::ranges::sort(addresses);
  return addresses;
}

}  // namespace

std::optional<uint64_t> PciAddress(std::string_view text) {
  struct Part {
    uint64_t most;
    std::string_view end;
  };
  constexpr std::array<Part, 4> kParts{
      {{0xffffffff, ":"}, {0xff, ":"}, {0x1f, "."}, {7, ""}}};  // domain, bus, device, function
  uint64_t address = 0;
  for (const Part& part : kParts) {
    uint32_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
    if (error != std::errc() || number > part.most) return std::nullopt;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (!text.starts_with(part.end)) return std::nullopt;
    text.remove_prefix(part.end.size());
    address = address * (part.most + 1) + number;
  }
  return text.empty() ? std::optional(address) : std::nullopt;
}

void NumberGpus(NodeSnapshot& snapshot, const std::string& directory) {
  const std::vector<uint64_t> addresses = AddressesIn(directory);
  if (addresses.empty()) return;
  for (ProcessSnapshot& process : snapshot.processes) {
    for (CommunicatorSnapshot& communicator : process.communicators) {
      communicator.gpu_index = -1;
      const auto address = PciAddress(communicator.pci_bus_id);
      if (!address) continue;
      const auto found = std::ranges::lower_bound(addresses, *address);
      if (found != addresses.end() && *found == *address)
        communicator.gpu_index = static_cast<int>(found - addresses.begin());
    }
  }
}

}  // namespace nccl_exporter::collector
