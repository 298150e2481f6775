// SPDX-License-Identifier: Apache-2.0
// Decisions on what each copy of NCCL in the process is asked for: made at its first init, for
// good. Under the process's lock.
#pragma once

#include <sys/statvfs.h>

#include <array>
#include <cstdint>
#include <cstdlib>

#include "plugin/identity/cpu_allowance.h"
#include "plugin/identity/gpu_identity.h"
#include "plugin/nccl/event_policy.h"
#include "plugin/nccl/nccl_caller.h"
#include "plugin/nccl/profiler_abi.h"
#include "plugin/options.h"

namespace nccl_exporter::plugin {

// Arguments of NCCL's init, in one form for all API versions. v1 to v3 pass none of them:
// `is_known` is false, and id and rank come with the first operation.
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

struct EventDecision {
  int api_version = 0;  // 0: not made
  int nccl_version = 0;
  EventPolicy policy;
};

// All zeros is its first state.
class EventDecisions {
 public:
  // The decision for the copy of NCCL that calls. `address_in_nccl`: anything within it.
  const EventDecision& For(const InitRequest& request, const Options& options,
                           const void* address_in_nccl);

 private:
  // More releases than a process has copies of libnccl.
  static constexpr size_t kMostDecisions = 16;

  // Filled from the front; the last place is used again.
  std::array<EventDecision, kMostDecisions> decisions_;
};

inline const char* ProcessEnvironment(const char* name) { return std::getenv(name); }

// 0 where it is not known: no memory to rely on.
inline uint64_t SharedMemoryFreeBytes() {
  struct statvfs file_system {};
  if (statvfs("/dev/shm", &file_system) != 0) return 0;
  return uint64_t{file_system.f_bavail} * file_system.f_frsize;
}

// Once for each release that calls, so that communicators of one job are timed alike however full
// /dev/shm becomes.
inline const EventDecision& EventDecisions::For(const InitRequest& request, const Options& options,
                                                const void* address_in_nccl) {
  const int api_version = request.api_version;
  const int nccl_version = FindNcclVersion(address_in_nccl);
  EventDecision* decision = &decisions_[0];
  for (; decision->api_version != 0 && decision != &decisions_.back(); ++decision) {
    if (decision->api_version == api_version && decision->nccl_version == nccl_version)
      return *decision;
  }
  const LocalRanks local_ranks = FindLocalRanks(ProcessEnvironment, request.ranks, request.nodes);
  *decision = {
      .api_version = api_version,
      .nccl_version = nccl_version,
      .policy = DecideEvents(
          {.api_version = api_version,
           .nccl_version = nccl_version,
           .kernel_timing = options.kernel_timing,
           .shared_memory_free_bytes = SharedMemoryFreeBytes(),
           .local_ranks = local_ranks.on_node,
           .allgatherv_is_off = IsAllgathervOff(ProcessEnvironment),
           .milli_cpus_per_rank = MilliCpusPerRank(ReadCpuAllowance(), local_ranks),
           .weak_exchange_may_fail = kWeakExchangeMayFail,
           .may_register_nvls_buffers = !AreNvlsBuffersOff(ProcessEnvironment) && MayMulticast(),
           .shares_resources = SharesResources(ProcessEnvironment)})};
  return *decision;
}

}  // namespace nccl_exporter::plugin
