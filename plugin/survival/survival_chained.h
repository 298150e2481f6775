// SPDX-License-Identifier: Apache-2.0
// Answers that a test asks of the chained plugin, and what the plugin has seen. One in a process.
#pragma once

#include <atomic>
#include <cstdint>

namespace nccl_exporter::plugin::survival {

struct Chained {
  int init_result = 0;
  int result = 0;  // of all other callbacks
  int mask = 0xffff;
  bool has_context = true;
  bool has_handles = true;
  uint64_t callback_ns = 0;  // by which each callback but init and finalize advances the clock

  const void* descriptor = nullptr;  // of the last start
  std::atomic<uint64_t> inits, starts, stops, records, finalizes;
  std::atomic<uint64_t> wrong;  // contexts and handles that it has not made
};

}  // namespace nccl_exporter::plugin::survival
