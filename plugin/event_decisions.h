// SPDX-License-Identifier: Apache-2.0
// Decisions on what each copy of NCCL in the process is asked for: made at its first init, for
// good. Under the process's lock.
#pragma once

#include <array>

#include "plugin/init_request.h"
#include "plugin/nccl/event_policy.h"
#include "plugin/options.h"

namespace nccl_exporter::plugin {

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

}  // namespace nccl_exporter::plugin
