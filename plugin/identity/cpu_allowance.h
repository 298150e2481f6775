// SPDX-License-Identifier: Apache-2.0
// CPUs that this process may use: affinity, cpuset and cgroup quota. At init only.
#pragma once

#include <cstdint>

#include "plugin/identity/identity.h"

namespace nccl_exporter::plugin {

// 0: not known, or without a limit.
struct CpuAllowance {
  uint32_t affinity = 0;  // CPUs that the calling thread may run on; NCCL's threads inherit them
  // CPUs of the cpuset, or of the node: what all ranks of the node have together.
  uint32_t shared = 0;
  uint32_t quota_milli = 0;  // cgroup quota, in thousandths of a CPU: the least of all levels
};

// `root` is prepended to /proc and /sys: empty but in tests. Knows cgroup v2 and v1. In a container
// the path in /proc/self/cgroup may name a directory of the host: each prefix of it is tried, down
// to the mount itself.
CpuAllowance ReadCpuAllowance(const char* root = "");

// Thousandths of a CPU for each rank; the greatest number where nothing is known. The ranks of a
// process share its affinity; all ranks of the node share cpuset and quota. That several processes
// are bound to the same CPUs is not seen.
uint32_t MilliCpusPerRank(const CpuAllowance& allowance, const LocalRanks& ranks);

}  // namespace nccl_exporter::plugin
