// SPDX-License-Identifier: Apache-2.0
#include "plugin/nccl/nccl_version.h"

#include <dlfcn.h>

#include "plugin/oldest_glibc.h"

namespace nccl_exporter::plugin {
namespace {

// The version function reachable through `library`, if it lies in the object that begins at `base`.
int AskLibrary(void* library, const void* base) {
  if (library == nullptr) return 0;
  using GetVersion = int (*)(int*);
  const auto get_version = reinterpret_cast<GetVersion>(dlsym(library, "ncclGetVersion"));
  Dl_info info{};
  int version = 0;
  if (get_version != nullptr && dladdr(reinterpret_cast<void*>(get_version), &info) != 0 &&
      info.dli_fbase == base) {
    if (get_version(&version) != 0) version = 0;
  }
  dlclose(library);
  return version > 0 ? version : 0;
}

}  // namespace

int FindNcclVersion(const void* address_in_nccl) {
  Dl_info info{};
  if (address_in_nccl == nullptr || dladdr(address_in_nccl, &info) == 0 ||
      info.dli_fname == nullptr)
    return 0;
  const int version = AskLibrary(dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_LAZY), info.dli_fbase);
  // NCCL may be part of the program itself, which is not opened by its name.
  return version != 0 ? version : AskLibrary(dlopen(nullptr, RTLD_LAZY), info.dli_fbase);
}

}  // namespace nccl_exporter::plugin
