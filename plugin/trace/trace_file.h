// SPDX-License-Identifier: Apache-2.0
// The trace file of this process: made and mapped when the segment is, for the life of the process.
// Under the process's lock.
#pragma once

#include <cstdint>

#include "proto/trace_ring.h"

namespace nccl_exporter::plugin {

struct TraceFile {
  trace_ring::File* file = nullptr;  // nullptr: there is none
  const char* fault = nullptr;       // the step that failed; errno has the reason
};

// `owner_start_ns`: of the segment. The descriptor stays open: it is how a requester finds the
// file. A forked child has both, and does not know of them: see process.h.
TraceFile MakeTraceFile(uint64_t owner_start_ns);

}  // namespace nccl_exporter::plugin
