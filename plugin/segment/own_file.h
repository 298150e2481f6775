// SPDX-License-Identifier: Apache-2.0
// Files that the plugin makes, the private memory that it maps, and functions that glibc 2.17
// lacks, by system calls: the library loads into every container in which NCCL runs. At init only.
// Functions that newer releases of glibc have moved are in //plugin/linked_glibc.
// //plugin:library_test fails if the library asks for a newer release.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <new>

namespace nccl_exporter::plugin {

// MADV_WIPEONFORK of <linux/mman.h>, which old systems lack. A child finds zeros. Linux 4.14 and
// later; some sandboxes refuse it.
constexpr int kWipeOnFork = 18;

// Zeroed memory that is not the heap's. Touched at once, so that no callback waits for a page.
inline void* MapMemory(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

// nullptr if there is no memory for it. Never given back. In a forked child it is zeros, or not
// there, since each page would be copied at the parent's next write: see process.h for why nothing
// in a child leads to it.
template <typename T>
T* MakeMapped() {
  void* memory = MapMemory(sizeof(T));
  if (memory == nullptr) return nullptr;
  if (madvise(memory, sizeof(T), kWipeOnFork) != 0) madvise(memory, sizeof(T), MADV_DONTFORK);
  return new (memory) T;
}

// As mmap with PROT_READ | PROT_WRITE and MAP_SHARED, of a sparse file. After
// mlockall(MCL_FUTURE) that would fill the file: every page of a mapping that may be accessed is
// read in at once, and kept in memory. So it may not be accessed until it is no longer to be kept.
inline void* MapSparse(int file, size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_NONE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return memory;
  munlock(memory, bytes);
  if (mprotect(memory, bytes, PROT_READ | PROT_WRITE) == 0) return memory;
  munmap(memory, bytes);
  return MAP_FAILED;
}

// Growing a file beyond RLIMIT_FSIZE is a signal that kills the process, not an error.
inline uint64_t MostFileBytes() {
  rlimit limit{};
  const bool is_limited = getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return is_limited ? limit.rlim_cur : ~uint64_t{0};
}

// The file by a higher number; closed, and -1, if there is none. Where the job runs with its
// standard streams closed, what it prints would go into the file.
inline int AboveStandardStreams(int file) {
  if (file > STDERR_FILENO) return file;
  const int higher = fcntl(file, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  close(file);
  return higher;
}

// fstat is a function of glibc since 2.33. The kernel's struct is glibc's, on both machines.
inline bool ReadStatus(int file, struct stat* status) {
  return syscall(SYS_fstat, file, status) == 0;
}

// fstatat, in the same way.
inline bool ReadStatusAt(int directory, const char* name, struct stat* status, int flags) {
  return syscall(SYS_newfstatat, directory, name, status, flags) == 0;
}

// getrandom is a function of glibc since 2.25, and of Linux since 3.17. False: there is none, or
// the kernel has not gathered enough yet.
inline bool FillRandom(void* bytes, size_t size) {
  constexpr unsigned kDoNotWait = 1;  // GRND_NONBLOCK of <linux/random.h>, which old systems lack
  return syscall(SYS_getrandom, bytes, size, kDoNotWait) == static_cast<long>(size);
}

}  // namespace nccl_exporter::plugin
