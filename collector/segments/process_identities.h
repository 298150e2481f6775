// SPDX-License-Identifier: Apache-2.0
// Proofs that the processes of a node give of each other: which are of one job, and whose numbers
// are no ranks. For any thread.
#pragma once

#include <cstdint>
#include <map>

#include "collector/node_snapshot.h"

namespace nccl_exporter::collector {

// It stays for as long as the process is followed: a label that comes back breaks series.
struct ProvenIdentity {
  uint64_t job = 0;  // first communicator of the job that it has joined; 0: none is known
  bool has_no_global_rank = false;
  bool has_no_local_rank = false;
  bool shares_pid = false;
};
using ProvenIdentities = std::map<FileKey, ProvenIdentity>;

// Joins processes without a given name that share a communicator: their job is that of the oldest.
// Then takes numbers away by which the launcher has numbered something else than ranks, as tasks
// that start several processes each. Processes of a job that have the same pid in containers of
// different host names get the host name for POD_NAME, where they have none: all labels of two
// processes were the same. Processes are in the order of their start.
void SettleIdentities(NodeSnapshot& snapshot, ProvenIdentities& proven);

}  // namespace nccl_exporter::collector
