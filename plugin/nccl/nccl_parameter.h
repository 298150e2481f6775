// SPDX-License-Identifier: Apache-2.0
// NCCL's own parameters, read as NCCL reads them. At init only.
#pragma once

namespace nccl_exporter::plugin {

// Whether NCCL_ALLGATHERV_ENABLE=0 is certain to be in force (2.29 and later). `get` answers like
// getenv. NCCL copies its configuration files into the environment before it calls init, and reads
// the parameter at the first Broadcast: a program that changes the variable in between is not seen.
bool IsAllgathervOff(const char* (*get)(const char* name));

}  // namespace nccl_exporter::plugin
