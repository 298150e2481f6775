// SPDX-License-Identifier: Apache-2.0
// Zeroed memory that is not the heap's. Touched at once, so that no callback waits for a page. A
// forked child does not have it: otherwise each page would be copied at the parent's next write.
// Under the process's lock.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>

namespace nccl_exporter::plugin {

// MADV_WIPEONFORK of <linux/mman.h>, which old systems lack. A child finds zeros. Linux 4.14 and
// later; some sandboxes refuse it.
constexpr int kWipeOnFork = 18;

inline void* MapMemory(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

// nullptr if there is no memory for it. Never given back. In a child it is zeros, or not there: see
// process.h for why nothing in a child leads to it.
template <typename T>
T* MakeMapped() {
  void* memory = MapMemory(sizeof(T));
  if (memory == nullptr) return nullptr;
  if (madvise(memory, sizeof(T), kWipeOnFork) != 0) madvise(memory, sizeof(T), MADV_DONTFORK);
  return new (memory) T;
}

}  // namespace nccl_exporter::plugin
