// SPDX-License-Identifier: Apache-2.0
#include "tests/nccl_host/host_job/nccl_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>

namespace nccl_exporter::host_job {
namespace {

void RequireSymbol(bool is_found, const char* name) {
  if (is_found) return;
  fprintf(stderr, "host_job: %s: %s\n", name, dlerror());
  _exit(2);
}

void* Loaded(const char* file) {
  void* const library = dlopen(file, RTLD_NOW | RTLD_GLOBAL);
  RequireSymbol(library != nullptr, file);
  return library;
}

}  // namespace

Symbol FoundIfThere(const char* name) {
  // CUDA's runtime loads the driver, in which a plugin looks for the GPU. That of a rig does not.
  [[maybe_unused]] static void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  static void* const cuda = Loaded("libcudart.so.13");
  static void* const nccl = Loaded("libnccl.so.2");
  void* const in_nccl = dlsym(nccl, name);
  return {in_nccl != nullptr ? in_nccl : dlsym(cuda, name)};
}

Symbol Found(const char* name) {
  const Symbol symbol = FoundIfThere(name);
  RequireSymbol(symbol.address != nullptr, name);
  return symbol;
}

const Nccl& NcclLibrary() {
  static const Nccl nccl;
  return nccl;
}

const Cuda& CudaLibrary() {
  static const Cuda cuda;
  return cuda;
}

void Require(int result, const char* what) {
  if (result == 0) return;
  fprintf(stderr, "host_job: %s: %d: %s\n", what, result, NcclLibrary().GetLastError(nullptr));
  fflush(stderr);
  _exit(3);
}

}  // namespace nccl_exporter::host_job
