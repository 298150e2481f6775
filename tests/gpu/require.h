// SPDX-License-Identifier: Apache-2.0
// Ends the program where NCCL or CUDA refuses: a job that cannot go on would leave its peers
// waiting.
#pragma once

#include "tests/gpu/nccl_api.h"

namespace nccl_exporter {

// The rank of this process, for the message.
void NameRequirements(int rank);

// One line on standard error and exit code 1 unless successful; `what` names the call.
void Require(ncclResult_t result, const char* what);
void Require(cudaError_t result, const char* what);
void Require(bool holds, const char* what);  // errno has the reason

}  // namespace nccl_exporter
