// SPDX-License-Identifier: Apache-2.0
// A replacement of RCCL or NCCLX: the symbols that distinguish it from NVIDIA's NCCL, and a logger
// that keeps the levels of what it is given.
#include <array>
#include <atomic>
#include <cstddef>

extern "C" {

// Numbers of lines by level.
std::array<std::atomic<int>, 8> survival_fork_lines{};

void survival_fork_log(int level, unsigned long, const char*, int, const char*, ...) {
  survival_fork_lines[static_cast<std::size_t>(level) % survival_fork_lines.size()].fetch_add(1);
}

void ncclAllToAllv() {}

}  // extern "C"
