// SPDX-License-Identifier: Apache-2.0
#include "plugin/nccl/nccl_parameter.h"

#include <dlfcn.h>
#include <strings.h>

#include <cerrno>
#include <cstdlib>

#include "plugin/oldest_glibc.h"

namespace nccl_exporter::plugin {
namespace {

// NCCL 2.29 and later ask an environment plugin first (plugin/env.cc): by default a library of this
// name.
bool HasEnvironmentPlugin(const char* (*get)(const char* name)) {
  const char* name = get("NCCL_ENV_PLUGIN");
  if (name != nullptr) return strcasecmp(name, "none") != 0;
  void* library = dlopen("libnccl-env.so", RTLD_NOLOAD | RTLD_LAZY);
  if (library == nullptr) return false;
  dlclose(library);
  return true;
}

}  // namespace

bool IsAllgathervOff(const char* (*get)(const char* name)) {
  // NCCL_NO_CACHE names parameters that are read again at each use (param/param.cc).
  if (HasEnvironmentPlugin(get) || get("NCCL_NO_CACHE") != nullptr) return false;
  const char* text = get("NCCL_ALLGATHERV_ENABLE");
  if (text == nullptr || text[0] == '\0') return false;
  errno = 0;
  const long long value = std::strtoll(text, nullptr, 0);  // as ncclLoadParam does (misc/param.cc)
  return errno == 0 && value == 0;
}

}  // namespace nccl_exporter::plugin
