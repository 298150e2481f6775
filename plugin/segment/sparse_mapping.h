// SPDX-License-Identifier: Apache-2.0
// Maps a sparse file to read and write it. At init only.
#pragma once

#include <sys/mman.h>

#include <cstddef>

namespace nccl_exporter::plugin {

// As mmap with PROT_READ | PROT_WRITE. After mlockall(MCL_FUTURE) that would fill the file: every
// page of a mapping that may be accessed is read in at once, and kept in memory. So it may not be
// accessed until it is no longer to be kept.
inline void* MapSparse(int file, size_t bytes, int flags) {
  void* const memory = mmap(nullptr, bytes, PROT_NONE, flags, file, 0);
  if (memory == MAP_FAILED) return memory;
  munlock(memory, bytes);
  if (mprotect(memory, bytes, PROT_READ | PROT_WRITE) == 0) return memory;
  munmap(memory, bytes);
  return MAP_FAILED;
}

}  // namespace nccl_exporter::plugin
