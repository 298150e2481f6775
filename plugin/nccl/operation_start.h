// SPDX-License-Identifier: Apache-2.0
// An operation as NCCL announces it.
#pragma once

#include <cstdint>

#include "proto/collective.h"

namespace nccl_exporter::plugin {

// Start of a collective or point-to-point task, the same for every API version.
struct OperationStart {
  Function function = Function::kOther;
  uint64_t message_bytes = 0;
  uint64_t sequence = 0;       // NCCL's, by function; 0 for Send and Recv
  uint64_t call_ns = 0;        // CLOCK_MONOTONIC at or before the call
  bool call_is_bound = false;  // the kernel cannot have started before call_ns
  // The API announces calls, so that readers take the call's time for such a bound.
  bool has_call_events = false;
  uint32_t channels = 0;  // announced; 0: not known
  bool channels_are_exact = false;
  bool has_no_parts = false;  // nothing will be reported on it (proxies do not take sends to self)
  bool is_to_self = false;    // Send or Recv
  bool is_replay = false;     // of a captured graph
  // Runs on a kernel over symmetric windows, which never crosses the network by proxies.
  bool is_symmetric = false;
  // By copy engine: no kernel, and NCCL's number of it is of another sequence.
  bool is_copy = false;
  // No part of its own: the channels of its launch's first task are its own, too.
  bool is_carried = false;
  // It may have no channels, so that nothing shows when it is complete: called outside of a window
  // (it has proxy operations if it crosses the network), by copy engine, or possibly the replay of
  // a symmetric kernel.
  bool is_untimed = false;
  int peer = -1;
  uint64_t launch = 0;  // ticket of its Group event; 0: none
  bool launch_is_followed = true;
};

}  // namespace nccl_exporter::plugin
