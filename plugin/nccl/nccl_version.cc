// SPDX-License-Identifier: Apache-2.0
#include "plugin/nccl/nccl_version.h"

#include <dlfcn.h>

#include "plugin/oldest_glibc.h"

namespace nccl_exporter::plugin {
namespace {

// The symbol reachable through `library`, if it lies in the object that begins at `base`, which its
// caller keeps open.
void* FindIn(void* library, const char* name, const void* base) {
  if (library == nullptr) return nullptr;
  void* const symbol = dlsym(library, name);
  dlclose(library);
  Dl_info info{};
  const bool is_there = symbol != nullptr && dladdr(symbol, &info) != 0 && info.dli_fbase == base;
  return is_there ? symbol : nullptr;
}

void* FindInCaller(const void* address_in_nccl, const char* name) {
  Dl_info info{};
  if (address_in_nccl == nullptr || dladdr(address_in_nccl, &info) == 0 ||
      info.dli_fname == nullptr)
    return nullptr;
  void* const symbol =
      FindIn(dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_LAZY), name, info.dli_fbase);
  // NCCL may be part of the program itself, which is not opened by its name.
  return symbol != nullptr ? symbol : FindIn(dlopen(nullptr, RTLD_LAZY), name, info.dli_fbase);
}

}  // namespace

int FindNcclVersion(const void* address_in_nccl) {
  using GetVersion = int (*)(int*);
  const auto get_version =
      reinterpret_cast<GetVersion>(FindInCaller(address_in_nccl, "ncclGetVersion"));
  int version = 0;
  const bool is_known = get_version != nullptr && get_version(&version) == 0 && version > 0;
  return is_known ? version : 0;
}

int LogLevelOf(const void* logger, int level) {
  return FindInCaller(logger, "ncclAllToAllv") != nullptr ? level + 1 : level;
}

}  // namespace nccl_exporter::plugin
