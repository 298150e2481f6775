// SPDX-License-Identifier: Apache-2.0
// Path of a file that is installed beside this program.
#pragma once

#include <filesystem>
#include <string_view>

namespace nccl_exporter::sim {

inline std::filesystem::path SiblingPath(std::string_view file) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / file;
}

}  // namespace nccl_exporter::sim
