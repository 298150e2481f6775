// SPDX-License-Identifier: Apache-2.0
// NCCL's id of a communicator, handed from rank 0 to the others through a file.
#pragma once

#include <string>

#include "tests/gpu/nccl_api.h"

namespace nccl_exporter {

// Id of a new communicator. Rank 0 makes it and leaves it in the file, which appears as a whole.
// The others wait for the file, for a minute at most: a rank 0 that takes longer has failed, and
// the process ends.
ncclUniqueId MeetBy(const std::string& path, int rank);

}  // namespace nccl_exporter
