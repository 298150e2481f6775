// SPDX-License-Identifier: Apache-2.0
// Calls of one rank of the job: a bit of everything that a profiler sees, in the same order on all
// ranks.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

namespace nccl_exporter {

struct WorkloadShape {
  int rank = 0;
  int ranks = 2;
  size_t largest_bytes = 256 << 20;  // of a message
  std::string directory;             // where the ranks meet; new for each job
};

// Runs it; the ground truth of this rank's communicators, in the order of their creation.
nlohmann::json RunWorkload(const WorkloadShape& shape);

}  // namespace nccl_exporter
