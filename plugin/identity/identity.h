// SPDX-License-Identifier: Apache-2.0
// Identity of this process: facts for the segment's header, taken at the first init from the kernel
// and from the environment variables of proto/identity_variables.h. No other variable is ever
// copied.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/shm_layout.h"

namespace nccl_exporter::plugin {

// Copies at most size - 1 bytes of `text` (nullptr: nothing), ends with NUL, and never cuts a UTF-8
// character in two.
void CopyText(char* field, size_t size, const char* text);

// Fills pid, uid, host name, executable, identity pairs and version of a header that is not
// published yet. `labels`: a list of proto/user_labels.h; nullptr: none.
void WriteProcessIdentity(layout::SegmentHeader* header, const char* (*get)(const char* name),
                          const char* labels = nullptr);

// Ranks of this job, at least 1 each.
struct LocalRanks {
  uint32_t on_node = 1;
  uint32_t in_process = 1;  // that share the CPUs which this process is bound to
};

// The launcher's processes per node (torchrun, Slurm, Open MPI), or the ranks per node of a
// communicator where these are more: a process may hold several ranks. Where no launcher shows it,
// a communicator with one rank per node says nothing of the job's others; then and where nothing is
// known it is 8, the usual number of GPUs.
LocalRanks FindLocalRanks(const char* (*get)(const char* name), int ranks = 0, int nodes = 0);

}  // namespace nccl_exporter::plugin
