// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/dynamic_function.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>

namespace nccl_exporter {
namespace {

constexpr int kCannotRun = 77;
constexpr char kToolkit[] = "/usr/local/cuda/lib64/";  // the loader need not know it

struct LibraryTraits {
  const char* variable;              // path that is taken before the names
  std::array<const char*, 2> names;  // the newest first
  const char* function;              // that each release has
};
// In the order of Library. CUDA 12 and 13 have the same functions in the same layouts.
constexpr std::array<LibraryTraits, 4> kLibraries{{
    {"GPU_KIT_NCCL", {"libnccl.so.2"}, "ncclGetVersion"},
    {"GPU_KIT_CUDART", {"libcudart.so.13", "libcudart.so.12"}, "cudaGetDeviceCount"},
    {"GPU_KIT_CUDA", {"libcuda.so.1"}, "cuInit"},
    {"GPU_KIT_CUBLAS", {"libcublas.so.13", "libcublas.so.12"}, "cublasCreate_v2"},
}};

struct Loaded {
  void* handle = nullptr;
  std::string reason;
};

Loaded Load(const LibraryTraits& traits) {
  Loaded loaded;
  const auto open = [&loaded](const std::string& path) {
    loaded.handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (loaded.handle == nullptr && loaded.reason.empty()) loaded.reason = dlerror();
    return loaded.handle != nullptr;
  };
  const char* path = getenv(traits.variable);
  if (path != nullptr && *path != '\0') return open(path), loaded;
  for (const char* name : traits.names) {
    if (name != nullptr && (open(name) || open(std::string(kToolkit) + name))) break;
  }
  return loaded;
}

const Loaded& Find(Library library) {
  static const std::array<Loaded, 4> kLoaded = [] {
    std::array<Loaded, 4> all;
    for (size_t i = 0; i < all.size(); ++i) all[i] = Load(kLibraries[i]);
    return all;
  }();
  return kLoaded[static_cast<size_t>(library)];
}

}  // namespace

void* FindFunction(Library library, const char* name) {
  const Loaded& loaded = Find(library);
  return loaded.handle == nullptr ? nullptr : dlsym(loaded.handle, name);
}

std::string PathOf(Library library) {
  void* function = FindFunction(library, kLibraries[static_cast<size_t>(library)].function);
  Dl_info info{};
  if (function != nullptr && dladdr(function, &info) != 0) return info.dli_fname;
  return Find(library).reason;
}

void EndWithoutFunction(Library library, const char* name) {
  printf("%s is missing: %s\n", name, PathOf(library).c_str());
  fflush(nullptr);
  _exit(kCannotRun);
}

}  // namespace nccl_exporter
