// SPDX-License-Identifier: Apache-2.0
// HostSignals, the kernel's counts of one process and its cgroup: plain data. Each is nothing where
// it cannot be read, which is not the same as 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace nccl_exporter::collector {

// Processes that are followed, and those of one user, so that two users never take each other's. A
// node has 8 or 16 ranks. Each holds some descriptors, and costs 50 us in 5 s.
inline constexpr size_t kMostHostProcesses = 32;
inline constexpr size_t kMostHostProcessesPerUser = kMostHostProcesses / 2;

struct HostSignals {
  // Time ready to run without a CPU, of the thread that waited longest in each look: never more
  // than the time between two looks. Of the threads that run most, since the first look.
  std::optional<uint64_t> cpu_wait_ns = {};
  std::optional<uint64_t> involuntary_switches = {};  // of the main thread
  std::optional<uint64_t> progress_cpu_ns = {};  // of NCCL's progress threads, since the first look
  std::optional<uint64_t> major_faults = {};
  std::optional<uint64_t> throttled_ns = {};     // by the quota of the innermost cgroup with one
  std::optional<uint64_t> memory_stall_ns = {};  // of any task of the cgroup, for memory
  // Now open. Nothing where the node has no adapter for verbs with a link.
  std::optional<uint64_t> verbs_devices = {};

  bool operator==(const HostSignals&) const = default;
};

}  // namespace nccl_exporter::collector
