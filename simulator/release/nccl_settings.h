// SPDX-License-Identifier: Apache-2.0
// Settings of NCCL in the job's environment that change what a plugin meets.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstdlib>

namespace nccl_exporter::sim {

struct NcclSettings {
  bool uses_allgatherv = true;             // NCCL_ALLGATHERV_ENABLE, 2.29 and later
  bool has_rearchitected_enqueue = false;  // NCCL_ENQUEUE_REARCH_ENABLE, 2.31 and later

  bool operator==(const NcclSettings&) const = default;
};

// A parameter as ncclLoadParam reads it (2.30.7 src/misc/param.cc): strtoll with base 0, trailing
// text ignored; the default if it is unset, empty or out of range.
inline int64_t NcclParameter(const char* name, int64_t standard) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return standard;
  errno = 0;
  const int64_t value = std::strtoll(text, nullptr, 0);
  return errno == 0 ? value : standard;
}

inline NcclSettings NcclSettingsOfEnvironment() {
  return {.uses_allgatherv = NcclParameter("NCCL_ALLGATHERV_ENABLE", 1) != 0,
          .has_rearchitected_enqueue = NcclParameter("NCCL_ENQUEUE_REARCH_ENABLE", 0) != 0};
}

}  // namespace nccl_exporter::sim
