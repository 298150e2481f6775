// SPDX-License-Identifier: Apache-2.0
// Search of a release of NCCL for its profiler plugin: names of files, and symbols in them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/release/release.h"

namespace nccl_exporter::sim {

struct PluginSearch {
  bool is_disabled = false;            // the user wants none
  bool is_in_main_program = false;     // a plugin that is linked or preloaded
  std::vector<std::string> libraries;  // names for dlopen, to be tried in this order
};

// `value` is that of NCCL_PROFILER_PLUGIN.
PluginSearch PluginSearchOf(const Release& release, std::optional<std::string_view> value);

// Symbols in the order of the look-up, newest first.
std::vector<std::string> PluginSymbols(const Release& release);

}  // namespace nccl_exporter::sim
