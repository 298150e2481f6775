// SPDX-License-Identifier: Apache-2.0
#include "collector/gpu_numbers.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <vector>

namespace nccl_exporter::collector {
namespace {

// Takes a hexadecimal number and the separator behind it off the text; '\0': the text ends there.
std::optional<uint64_t> TakeNumber(std::string_view& text, char separator) {
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  if (separator == '\0') return text.empty() ? std::optional<uint64_t>(number) : std::nullopt;
  if (!text.starts_with(separator)) return std::nullopt;
  text.remove_prefix(1);
  return number;
}

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
  const auto domain = TakeNumber(text, ':');
  const auto bus = domain ? TakeNumber(text, ':') : std::nullopt;
  const auto device = bus ? TakeNumber(text, '.') : std::nullopt;
  const auto function = device ? TakeNumber(text, '\0') : std::nullopt;
  if (!function || *bus > 0xff || *device > 0x1f || *function > 7) return std::nullopt;
  return *domain << 16 | *bus << 8 | *device << 3 | *function;
}

void GpuNumbers::Apply(NodeSnapshot& snapshot) const {
  const std::vector<uint64_t> addresses = AddressesIn(directory_);
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
