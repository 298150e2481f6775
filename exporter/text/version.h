// SPDX-License-Identifier: Apache-2.0
// Versions as people read them: of the daemon, for --version, nccl_exporter_build_info and the
// landing page, and of NCCL.
#pragma once

#include <string>
#include <string_view>

namespace nccl_exporter::exporter {

inline constexpr std::string_view kVersion = "0.1.0";

#if defined(__clang__)
inline constexpr std::string_view kCompiler = "Clang " __clang_version__;
#else
inline constexpr std::string_view kCompiler = "GCC " __VERSION__;
#endif

// 22907 becomes 2.29.7, the spelling of NCCL's own log; empty if the version is not known.
inline std::string NcclVersionText(int version) {
  if (version <= 0) return "";
  return std::to_string(version / 10000) + '.' + std::to_string(version / 100 % 100) + '.' +
         std::to_string(version % 100);
}

}  // namespace nccl_exporter::exporter
