// SPDX-License-Identifier: Apache-2.0
#include "simulator/loader/plugin_search.h"

#include <strings.h>

namespace nccl_exporter::sim {
namespace {

constexpr std::string_view kDefaultLibrary = "libnccl-profiler.so";
constexpr std::string_view kStaticPlugin = "STATIC_PLUGIN";
constexpr size_t kLongestName = 254;  // longer ones are cut, from 2.26 on

bool IsLibraryName(std::string_view value) {
  return value.starts_with("lib") && value.ends_with(".so");
}

std::string Decorated(std::string_view value) {
  return "libnccl-profiler-" + std::string(value) + ".so";
}

bool IsPrefixOfStaticPlugin(std::string_view value) {
  return value.size() <= kStaticPlugin.size() &&
         strncasecmp(value.data(), kStaticPlugin.data(), value.size()) == 0;
}

// 2.27.0 to 2.27.4 take nothing literally but lib*.so: an absolute path fails.
bool TakesOnlyLibraryNames(int nccl_version) {
  return nccl_version >= 22700 && nccl_version < 22705;
}

std::vector<std::string> LibrariesOf(int nccl_version, std::string_view value) {
  const std::string literal(value);
  if (nccl_version < 22600) return {literal, literal};  // tried twice, without any magic
  if (TakesOnlyLibraryNames(nccl_version))
    return {IsLibraryName(value) ? literal : Decorated(value)};
  const bool is_complete = IsLibraryName(value) || value.find('/') != std::string_view::npos;
  if (nccl_version >= 22705 && is_complete) return {literal};
  return {literal, Decorated(value)};
}

}  // namespace

PluginSearch PluginSearchOf(const Release& release, std::optional<std::string_view> value) {
  PluginSearch search;
  const int version = release.nccl_version();
  if (!value || value->empty()) {
    search.libraries = {std::string(kDefaultLibrary)};
    return search;
  }
  if (version >= 22800 && value->size() == 4 && strncasecmp(value->data(), "none", 4) == 0) {
    search.is_disabled = true;
    return search;
  }
  if (!TakesOnlyLibraryNames(version) && IsPrefixOfStaticPlugin(*value)) {
    search.is_in_main_program = true;
    return search;
  }
  search.libraries = LibrariesOf(version, *value);
  if (version >= 22600) {
    for (std::string& name : search.libraries) name.resize(std::min(name.size(), kLongestName));
  }
  return search;
}

std::vector<std::string> PluginSymbols(const Release& release) {
  std::vector<std::string> symbols;
  for (int api_version = release.api_version(); api_version > 0; --api_version) {
    symbols.push_back("ncclProfiler_v" + std::to_string(api_version));
  }
  return symbols;
}

}  // namespace nccl_exporter::sim
