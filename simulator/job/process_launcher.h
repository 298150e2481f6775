// SPDX-License-Identifier: Apache-2.0
// Starts this program once for every process of the job, hands signals on, and puts the parts of
// the ground truth together.
#pragma once

#include "simulator/job/job_options.h"

namespace nccl_exporter::sim {

// The stop signals must be blocked. Returns the exit code of the job: 0, or 1 if a process could
// not be started or ended in another way than it should.
// A process of the job, and then the job, ends with this code where ncclCommDestroy would never
// return.
inline constexpr int kDestroyHangs = 3;

int RunJob(int argc, char** argv, const JobOptions& options);

}  // namespace nccl_exporter::sim
