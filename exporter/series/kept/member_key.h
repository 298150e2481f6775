// SPDX-License-Identifier: Apache-2.0
// MemberKey(), which process or communicator is the same in two snapshots. Pure functions, for any
// thread.
#pragma once

#include <tuple>

#include "collector/node_snapshot.h"

namespace nccl_exporter::exporter {

// A file system may give the inode number of a removed file to the next one. The time of start
// distinguishes them.
inline auto MemberKey(const collector::ProcessSnapshot& process) {
  return std::tuple(process.file, process.start_realtime_ns);
}

inline auto MemberKey(const collector::ProcessSnapshot& process,
                      const collector::CommunicatorSnapshot& communicator) {
  return std::tuple(process.file, communicator.slot, communicator.generation, communicator.id,
                    communicator.rank);
}

}  // namespace nccl_exporter::exporter
