// SPDX-License-Identifier: Apache-2.0
// Settings of NCCL in the job's environment that change what a plugin meets.
#pragma once

#include <cstdint>

namespace nccl_exporter::sim {

struct NcclSettings {
  bool uses_allgatherv = true;             // NCCL_ALLGATHERV_ENABLE, 2.29 and later
  bool has_rearchitected_enqueue = false;  // NCCL_ENQUEUE_REARCH_ENABLE, 2.31 and later

  bool operator==(const NcclSettings&) const = default;
};

// A parameter as ncclLoadParam reads it (2.30.7 src/misc/param.cc): strtoll with base 0, trailing
// text ignored; the default if it is unset, empty or out of range.
int64_t NcclParameter(const char* name, int64_t standard);

NcclSettings NcclSettingsOfEnvironment();

}  // namespace nccl_exporter::sim
