// SPDX-License-Identifier: Apache-2.0
#include "simulator/release/nccl_settings.h"

#include <cerrno>
#include <cstdlib>

namespace nccl_exporter::sim {

int64_t NcclParameter(const char* name, int64_t standard) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return standard;
  errno = 0;
  const int64_t value = std::strtoll(text, nullptr, 0);
  return errno == 0 ? value : standard;
}

NcclSettings NcclSettingsOfEnvironment() {
  return {.uses_allgatherv = NcclParameter("NCCL_ALLGATHERV_ENABLE", 1) != 0,
          .has_rearchitected_enqueue = NcclParameter("NCCL_ENQUEUE_REARCH_ENABLE", 0) != 0};
}

}  // namespace nccl_exporter::sim
