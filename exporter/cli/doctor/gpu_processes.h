// SPDX-License-Identifier: Apache-2.0
// Processes with NCCL and a GPU, and those of them that have no segment: by what they have mapped.
// For any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace nccl_exporter::exporter {

// Of one look: a node has fewer processes, unless a user starts them without end.
inline constexpr size_t kMostProcesses = 32768;
// Of one process: 65,530 mappings (vm.max_map_count) of 100 bytes. What is behind is not looked at.
inline constexpr size_t kMostMapsBytes = 8 << 20;

struct GpuProcesses {
  uint64_t processes = 0;
  std::vector<std::string> without_segment;  // PIDs in this PID namespace
  // Whether there can be no others: false where this process may not read all of them, or is in a
  // PID namespace of its own.
  bool sees_all = false;
};

// `proc` is /proc. A process that is under way to its end may hold the caller for as long as its
// memory is locked.
GpuProcesses GpuProcessesIn(const std::string& proc);

// Nothing where others may be hidden.
std::optional<uint64_t> UnmeasuredProcesses(const GpuProcesses& found);

}  // namespace nccl_exporter::exporter
