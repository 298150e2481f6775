// SPDX-License-Identifier: Apache-2.0
// Functions that glibc 2.17 lacks, by system calls, so that the library loads into every container
// in which NCCL runs. For any thread. Functions that newer releases of glibc have moved are in
// //plugin/linked_glibc. //plugin:library_test fails if the library asks for a newer release.
#pragma once

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

namespace nccl_exporter::plugin {

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
