// SPDX-License-Identifier: Apache-2.0
// The version of the daemon, for --version, nccl_exporter_build_info and the landing page.
#pragma once

#include <string_view>

namespace nccl_exporter::exporter {

inline constexpr std::string_view kVersion = "0.1.0";

#if defined(__clang__)
inline constexpr std::string_view kCompiler = "Clang " __clang_version__;
#else
inline constexpr std::string_view kCompiler = "GCC " __VERSION__;
#endif

}  // namespace nccl_exporter::exporter
