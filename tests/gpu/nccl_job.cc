// SPDX-License-Identifier: Apache-2.0
// A small job on the real NCCL, one process a rank, that writes down the ground truth of what it
// did. The profiler plugin is what NCCL_PROFILER_PLUGIN names.
#include <unistd.h>

#include <cstdio>

#include "tests/gpu/programs.h"
#include "tests/gpu/rank_processes.h"
#include "tests/gpu/require.h"
#include "tests/gpu/workload.h"

namespace nccl_exporter {
namespace {

// In a rank's process.
int RunRank(const WorkloadShape& shape) {
  NameRequirements(shape.rank);
  const nlohmann::json truth = {
      {"rank", shape.rank}, {"pid", getpid()}, {"communicators", RunWorkload(shape)}};
  const std::string path = shape.directory + "/truth." + std::to_string(shape.rank);
  FILE* file = fopen(path.c_str(), "w");
  Require(file != nullptr && fputs(truth.dump().c_str(), file) >= 0 && fclose(file) == 0,
          path.c_str());
  return 0;
}

}  // namespace

int RunNcclJob(const nlohmann::json& options) {
  RankProcesses job;
  WorkloadShape shape{.ranks = options["ranks"],
                      .largest_bytes = options["largest_bytes"],
                      .directory = options["directory"]};
  for (shape.rank = 0; shape.rank < shape.ranks; ++shape.rank) {
    job.Start({.rank = shape.rank, .ranks = shape.ranks, .separate_hosts = !options["one_host"]},
              {}, [&shape] { return RunRank(shape); });
  }
  return job.Wait(options["limit_seconds"]);
}

}  // namespace nccl_exporter
