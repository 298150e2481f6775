// SPDX-License-Identifier: Apache-2.0
#include "plugin/nccl/nccl_caller.h"

#include <dlfcn.h>
#include <strings.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace nccl_exporter::plugin {
namespace {

// NCCL 2.29 and later ask an environment plugin first (plugin/env.cc): by default a library of this
// name. NCCL_NO_CACHE names parameters that are read again at each use (param/param.cc).
bool MayReadElsewhere(const char* (*get)(const char* name)) {
  if (get("NCCL_NO_CACHE") != nullptr) return true;
  const char* name = get("NCCL_ENV_PLUGIN");
  if (name != nullptr) return strcasecmp(name, "none") != 0;
  void* library = dlopen("libnccl-env.so", RTLD_NOLOAD | RTLD_LAZY);
  if (library == nullptr) return false;
  dlclose(library);
  return true;
}

bool IsZero(const char* (*get)(const char* name), const char* name) {
  const char* text = get(name);
  if (text == nullptr || text[0] == '\0') return false;
  errno = 0;
  const long long value = std::strtoll(text, nullptr, 0);  // as ncclLoadParam does (misc/param.cc)
  return errno == 0 && value == 0;
}

// NCCL_ALGO, where it is one list for all functions (graph/tuning.cc parseList).
bool LeavesNvlsOut(const char* list) {
  if (list == nullptr || list[0] == '\0' || std::strpbrk(list, ":;") != nullptr) return false;
  const bool is_inverted = list[0] == '^';
  bool names_nvls = false, names_tree = false;
  for (const char* name = list + (is_inverted ? 1 : 0); *name != '\0';) {
    const size_t length = std::strcspn(name, ",");
    names_nvls |= length == 4 && strncasecmp(name, "NVLS", length) == 0;
    names_tree |= length == 8 && strncasecmp(name, "NVLSTree", length) == 0;
    name += length + (name[length] == ',' ? 1 : 0);
  }
  return is_inverted ? names_nvls && names_tree : !names_nvls && !names_tree;
}

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

bool IsAllgathervOff(const char* (*get)(const char* name)) {
  return !MayReadElsewhere(get) && IsZero(get, "NCCL_ALLGATHERV_ENABLE");
}

bool AreNvlsBuffersOff(const char* (*get)(const char* name)) {
  if (MayReadElsewhere(get)) return false;
  if (IsZero(get, "NCCL_NVLS_ENABLE") || LeavesNvlsOut(get("NCCL_ALGO"))) return true;
  return IsZero(get, "NCCL_LOCAL_REGISTER") && IsZero(get, "NCCL_GRAPH_REGISTER");
}

bool SharesResources(const char* (*get)(const char* name)) {
  for (const char* name : {"NCCL_COMM_SPLIT_SHARE_RESOURCES", "NCCL_COMM_SHRINK_SHARE_RESOURCES"}) {
    const char* text = get(name);
    if (text != nullptr && text[0] != '\0' && !IsZero(get, name)) return true;
  }
  return false;
}

}  // namespace nccl_exporter::plugin
