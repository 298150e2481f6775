// SPDX-License-Identifier: Apache-2.0
// Test support: the trace file of the process itself, found and mapped as a requester does it.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "plugin/testing/trace_requester.h"
#include "proto/trace_ring.h"

namespace nccl_exporter::plugin {

// The file that was made last: a forked child has its parent's as well. Never unmapped or closed.
struct OwnTraceFile {
  int descriptor = -1;
  trace_ring::File* memory = nullptr;
};
inline OwnTraceFile FindOwnTraceFile() {
  OwnTraceFile latest;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone);
    if (target != std::string("/memfd:") + trace_ring::kFileName + " (deleted)") continue;
    const int file = open(entry.path().c_str(), O_RDWR | O_CLOEXEC);
    void* const mapped =
        mmap(nullptr, sizeof(trace_ring::File), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) continue;
    auto* const memory = static_cast<trace_ring::File*>(mapped);
    if (latest.memory == nullptr ||
        memory->control.owner_start_ns > latest.memory->control.owner_start_ns)
      latest = {.descriptor = file, .memory = memory};
  }
  return latest;
}
inline trace_ring::File* MapOwnTraceFile() { return FindOwnTraceFile().memory; }

// Asks for a minute from now on.
inline TraceRequester::Request ForAMinute(trace_ring::Level level, uint64_t chunks = 4096) {
  const uint64_t now_ns = ReadClock(CLOCK_REALTIME);
  return {.level = level,
          .begin_realtime_ns = now_ns,
          .end_realtime_ns = now_ns + trace_ring::kMostWindowNs,
          .chunks = chunks};
}

}  // namespace nccl_exporter::plugin
