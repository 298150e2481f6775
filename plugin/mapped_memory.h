// SPDX-License-Identifier: Apache-2.0
// Zeroed memory that is not the heap's. Touched at once, so that no callback waits for a page.
// Under the process's lock.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>

namespace nccl_exporter::plugin {

inline void* MapMemory(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

// nullptr if there is no memory for it. Never given back.
template <typename T>
T* MakeMapped() {
  void* memory = MapMemory(sizeof(T));
  return memory == nullptr ? nullptr : new (memory) T;
}

}  // namespace nccl_exporter::plugin
