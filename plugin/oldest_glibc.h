// SPDX-License-Identifier: Apache-2.0
// Functions of glibc by the names that glibc 2.17 has for them, so that the library loads into
// every container in which NCCL runs. For any thread.
//
// A program that is linked today asks for the newest version of each function. glibc 2.34 gave
// those below a new version, when it moved them into libc.so.6; it keeps the first one for old
// programs. Before 2.34 they are in libdl.so.2 and libpthread.so.0, which the library therefore
// names. A source file that calls one of them includes this header; //plugin:library_test fails if
// not.
#pragma once

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

#if defined(__x86_64__)
#define NCCL_EXPORTER_FIRST_GLIBC "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define NCCL_EXPORTER_FIRST_GLIBC "GLIBC_2.17"
#else
#error "the first version of glibc on this machine is not known"
#endif

#define NCCL_EXPORTER_FIRST_VERSION(function) \
  __asm__(".symver " #function "," #function "@" NCCL_EXPORTER_FIRST_GLIBC)

NCCL_EXPORTER_FIRST_VERSION(dladdr);
NCCL_EXPORTER_FIRST_VERSION(dlclose);
NCCL_EXPORTER_FIRST_VERSION(dlopen);
NCCL_EXPORTER_FIRST_VERSION(dlsym);
NCCL_EXPORTER_FIRST_VERSION(pthread_getspecific);
NCCL_EXPORTER_FIRST_VERSION(pthread_key_create);
NCCL_EXPORTER_FIRST_VERSION(pthread_setspecific);

#undef NCCL_EXPORTER_FIRST_VERSION
#undef NCCL_EXPORTER_FIRST_GLIBC

namespace nccl_exporter::plugin {

// fstat is a function of glibc since 2.33. The kernel's struct is glibc's, on both machines.
inline bool ReadStatus(int file, struct stat* status) {
  return syscall(SYS_fstat, file, status) == 0;
}

// getrandom is a function of glibc since 2.25, and of Linux since 3.17. False: there is none, or
// the kernel has not gathered enough yet.
inline bool FillRandom(void* bytes, size_t size) {
  constexpr unsigned kDoNotWait = 1;  // GRND_NONBLOCK of <linux/random.h>, which old systems lack
  return syscall(SYS_getrandom, bytes, size, kDoNotWait) == static_cast<long>(size);
}

}  // namespace nccl_exporter::plugin
