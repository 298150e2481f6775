// SPDX-License-Identifier: Apache-2.0
// NCCL's id of a communicator, handed from rank 0 to the others through a file.
#pragma once

#include <string>

#include "tests/gpu/nccl_api.h"

namespace nccl_exporter {

// Appears as a whole.
void LeaveId(const std::string& path, const ncclUniqueId& id);

// Waits for it, for a minute at most: a rank 0 that takes longer has failed, and the process ends.
ncclUniqueId AwaitId(const std::string& path);

}  // namespace nccl_exporter
