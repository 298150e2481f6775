// SPDX-License-Identifier: Apache-2.0
// Has the real libnccl load, start, stop, unload and load again its profiler plugin, without a GPU:
// calls the function that communicator init calls, which needs only fields of the communicator.
// Ends with 77 where it cannot.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>

#include "tests/gpu/local_symbol.h"

namespace nccl_exporter {
namespace {

constexpr int kCannotRun = 77;
// Their C++ names, the same from 2.23 to 2.30; in the library's full symbol table only.
constexpr char kInit[] = "_Z22ncclProfilerPluginInitP8ncclComm";
constexpr char kFinalize[] = "_Z26ncclProfilerPluginFinalizeP8ncclComm";
// Stands for a communicator: all zeros, unnamed, and larger than any.
constexpr size_t kCommunicatorBytes = 64 << 20;

int Refuse(const char* why) {
  printf("%s\n", why);
  return kCannotRun;
}

int Load(const char* library_path, int times) {
  void* library = dlopen(library_path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Refuse(dlerror());
  void* known = dlsym(library, "ncclGetVersion");
  if (known == nullptr) return Refuse("libnccl.so.2 has no ncclGetVersion");
  int version = 0;
  reinterpret_cast<int (*)(int*)>(known)(&version);
  using OnCommunicator = int (*)(void*);
  const auto init = reinterpret_cast<OnCommunicator>(FindLocalSymbol(known, kInit));
  const auto finalize = reinterpret_cast<OnCommunicator>(FindLocalSymbol(known, kFinalize));
  if (init == nullptr || finalize == nullptr)
    return Refuse("libnccl.so.2 has no full symbol table");

  for (int i = 0; i < times; ++i) {
    void* communicator = mmap(nullptr, kCommunicatorBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (communicator == MAP_FAILED || init(communicator) != 0 || finalize(communicator) != 0)
      return 1;
    munmap(communicator, kCommunicatorBytes);
  }
  printf("%d\n", version);
  return 0;
}

}  // namespace
}  // namespace nccl_exporter

// Arguments: path of libnccl, and how many communicators to begin and end one after the other.
int main(int argc, char** argv) {
  if (argc != 3) return 2;
  int times = 0;
  if (sscanf(argv[2], "%d", &times) != 1) return 2;
  const int code = nccl_exporter::Load(argv[1], times);
  fflush(stdout);
  _exit(code);  // exit handlers of libnccl are not tested
}
