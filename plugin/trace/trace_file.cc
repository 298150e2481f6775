// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "plugin/segment/atomics.h"
#include "plugin/segment/own_file.h"
#include "plugin/trace/trace_session.h"

namespace nccl_exporter::plugin {
namespace {

using trace_ring::File;

// Constants of <linux/memfd.h> and <linux/fcntl.h>, which old systems lack.
constexpr unsigned kCloseOnExec = 1, kAllowSealing = 2, kNoExecSeal = 8;
constexpr int kAddSeals = 1033;
constexpr int kSealSeal = 1, kSealShrink = 2, kSealGrow = 4;

// memfd_create is a function of glibc since 2.27, and of Linux since 3.17. Linux before 6.3 does
// not know kNoExecSeal, and later ones may refuse files without it (vm.memfd_noexec).
int CreateMemoryFile() {
  for (const unsigned flags :
       {kCloseOnExec | kAllowSealing | kNoExecSeal, kCloseOnExec | kAllowSealing}) {
    const long file = syscall(SYS_memfd_create, trace_ring::kFileName, flags);
    if (file >= 0 || errno != EINVAL) return static_cast<int>(file);
  }
  return -1;
}

const char* SizeAndMap(int file, File** mapped) {
  errno = EFBIG;
  if (MostFileBytes() < sizeof(File) || ftruncate(file, sizeof(File)) != 0)
    return "cannot size the file";
  if (fcntl(file, kAddSeals, kSealShrink | kSealGrow | kSealSeal) != 0)
    return "cannot seal the file";
  void* const memory = MapSparse(file, sizeof(File), MAP_SHARED | MAP_NORESERVE);
  if (memory == MAP_FAILED) return "cannot map the file";
  madvise(memory, sizeof(File), MADV_DONTDUMP);
  *mapped = static_cast<File*>(memory);
  return nullptr;
}

}  // namespace

TraceFile MakeTraceFile(uint64_t owner_start_ns) {
  int file = CreateMemoryFile();
  if (file < 0) return {.fault = "cannot create a file in memory"};
  file = AboveStandardStreams(file);
  if (file < 0) return {.fault = "no descriptor for a file in memory"};
  File* mapped = nullptr;
  const char* const fault = SizeAndMap(file, &mapped);
  if (fault != nullptr) {
    const int reason = errno;
    close(file);
    errno = reason;
    return {.fault = fault};
  }
  // By a system call, which fails where a store would be a SIGBUS.
  if (pwrite(file, "", 1, 0) != 1) {
    const int reason = errno;
    munmap(mapped, sizeof(File));
    close(file);
    errno = reason;
    return {.fault = "no memory for the file"};
  }
  trace_ring::ControlPage& control = mapped->control;
  control.magic = trace_ring::kMagic;
  control.owner_start_ns = owner_start_ns;
  control.file_bytes = sizeof(File);
  StoreRelease(control.version, trace_ring::kVersion);
  return {.file = mapped};
}

}  // namespace nccl_exporter::plugin
