// SPDX-License-Identifier: Apache-2.0
// Arguments of NCCL's init, in one form for all API versions.
#pragma once

#include <cstdint>

#include "plugin/nccl/profiler_abi.h"

namespace nccl_exporter::plugin {

// v1 to v3 pass none of them: `is_known` is false, and id and rank come with the first operation.
struct InitRequest {
  int api_version = 0;
  bool is_known = false;
  uint64_t id = 0;
  const char* name = nullptr;
  int nodes = 0;
  int ranks = 0;
  int rank = 0;
  abi::Logger logger = nullptr;
};

}  // namespace nccl_exporter::plugin
