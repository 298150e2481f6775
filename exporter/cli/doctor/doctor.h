// SPDX-License-Identifier: Apache-2.0
// `nccl-exporter doctor`: looks at this machine and one process, and says what to change.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/cli/doctor/checks.h"

namespace nccl_exporter::exporter {

// What the command line says. Directories may have a pattern for private ones (-*), as those of the
// daemon; the one of the process's user is checked.
struct DoctorInput {
  std::vector<std::string> segment_dirs;
  std::vector<std::string> listen_addresses;
  uint64_t pid = 0;            // 0: no process
  std::string proc = "/proc";  // where processes are
};

// In the order in which a segment comes to the daemon: directories, plugin, NCCL, environment, log,
// segment, daemon. `node` is of the same directories. Waits up to two seconds for a daemon.
std::vector<Check> Examine(const DoctorInput& input, const collector::NodeSnapshot& node);

}  // namespace nccl_exporter::exporter
