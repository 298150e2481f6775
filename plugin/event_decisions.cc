// SPDX-License-Identifier: Apache-2.0
#include "plugin/event_decisions.h"

#include <sys/statvfs.h>

#include <cstdlib>

#include "plugin/identity/cpu_allowance.h"
#include "plugin/nccl/nccl_parameter.h"
#include "plugin/nccl/nccl_version.h"

namespace nccl_exporter::plugin {
namespace {

const char* Environment(const char* name) { return std::getenv(name); }

uint64_t SharedMemoryFreeBytes() {
  struct statvfs file_system {};
  if (statvfs("/dev/shm", &file_system) != 0) return 0;
  return uint64_t{file_system.f_bavail} * file_system.f_frsize;
}

}  // namespace

// Once for each release that calls, so that communicators of one job are timed alike however full
// /dev/shm becomes.
const EventDecision& EventDecisions::For(const InitRequest& request, const Options& options,
                                         const void* address_in_nccl) {
  const int api_version = request.api_version;
  const int nccl_version = FindNcclVersion(address_in_nccl);
  EventDecision* decision = &decisions_[0];
  for (; decision->api_version != 0 && decision != &decisions_.back(); ++decision) {
    if (decision->api_version == api_version && decision->nccl_version == nccl_version)
      return *decision;
  }
  const LocalRanks local_ranks = FindLocalRanks(Environment, request.ranks, request.nodes);
  *decision = {.api_version = api_version,
               .nccl_version = nccl_version,
               .policy = DecideEvents(
                   {.api_version = api_version,
                    .nccl_version = nccl_version,
                    .kernel_timing = options.kernel_timing,
                    .shared_memory_free_bytes = SharedMemoryFreeBytes(),
                    .local_ranks = local_ranks.on_node,
                    .allgatherv_is_off = IsAllgathervOff(Environment),
                    .milli_cpus_per_rank = MilliCpusPerRank(ReadCpuAllowance(), local_ranks),
                    .asks_for_phases = options.kernel_phases})};
  return *decision;
}

}  // namespace nccl_exporter::plugin
