// SPDX-License-Identifier: Apache-2.0
// CPUs that this process may use: affinity and the quota of its cgroup. At init only.
#pragma once

#include <cstdint>

#include "plugin/identity/identity.h"

namespace nccl_exporter::plugin {

// 0: not known, or without a limit.
struct CpuAllowance {
  uint32_t affinity = 0;     // CPUs that the calling thread may run on; NCCL's threads inherit them
  uint32_t online = 0;       // CPUs of the node
  uint32_t quota_milli = 0;  // of the process's cgroup, in thousandths of a CPU
};

// `root` is prepended to /proc and /sys: empty but in tests. Knows cgroup v2 and v1. The quota is
// that of the process's own cgroup, or of the mount where that is not found, as in a container.
CpuAllowance ReadCpuAllowance(const char* root = "");

// Thousandths of a CPU for each rank; the greatest number where nothing is known. The ranks of a
// process share its affinity; all ranks of the node share its CPUs and the quota. That several
// processes are bound to the same CPUs is not seen.
uint32_t MilliCpusPerRank(const CpuAllowance& allowance, const LocalRanks& ranks);

}  // namespace nccl_exporter::plugin
