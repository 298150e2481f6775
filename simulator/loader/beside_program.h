// SPDX-License-Identifier: Apache-2.0
// Finds the libraries that are installed beside this program.
#pragma once

#include <filesystem>
#include <string_view>

namespace nccl_exporter::sim {

inline std::filesystem::path BesideProgram(std::string_view file) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / file;
}

}  // namespace nccl_exporter::sim
