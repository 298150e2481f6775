// SPDX-License-Identifier: Apache-2.0
#include "simulator/loader/nccl_library.h"

#include <array>
#include <cstdarg>
#include <cstdio>

namespace {

int nccl_version;
int log_level;
int process_rank;
int event_mask;

}  // namespace

#define NCCL_SIM_EXPORT __attribute__((visibility("default")))

extern "C" {

NCCL_SIM_EXPORT int ncclGetVersion(int* version) {
  *version = nccl_version;
  return 0;
}

NCCL_SIM_EXPORT int* NcclSimEventMask() { return &event_mask; }

NCCL_SIM_EXPORT void NcclSimLog(int level, unsigned long, const char*, int, const char* format,
                                ...) {
  constexpr std::array kLevels{"NONE", "VERSION", "WARN", "INFO", "ABORT", "TRACE"};
  if (level > log_level || level < 0 || level >= static_cast<int>(kLevels.size())) return;
  char message[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof(message), format, arguments);
  va_end(arguments);
  fprintf(stderr, "nccl-sim [rank %d] plugin %s: %s\n", process_rank,
          kLevels[static_cast<size_t>(level)], message);
}

NCCL_SIM_EXPORT void NcclSimConfigure(int version, int level, int rank) {
  nccl_version = version;
  log_level = level;
  process_rank = rank;
}
}
