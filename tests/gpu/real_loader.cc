// SPDX-License-Identifier: Apache-2.0
// Has the real libnccl load, start, stop, unload and load again its profiler plugin, without a GPU:
// calls the function that communicator init calls, which needs only fields of the communicator.
// Ends with 77 where it cannot.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>

#include "tests/gpu/local_symbol.h"
#include "tests/gpu/nccl_api.h"

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

int Load(int times) {
  const void* known = FindFunction(Library::kNccl, "ncclGetVersion");
  if (known == nullptr) return Refuse(PathOf(Library::kNccl).c_str());
  int version = 0;
  ncclGetVersion(&version);
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

// Argument: how many communicators to begin and end one after the other.
int main(int argc, char** argv) {
  if (argc != 2) return 2;
  int times = 0;
  if (sscanf(argv[1], "%d", &times) != 1) return 2;
  const int code = nccl_exporter::Load(times);
  fflush(stdout);
  _exit(code);  // exit handlers of libnccl are not tested
}
