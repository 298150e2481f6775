// SPDX-License-Identifier: Apache-2.0
// Compiled for each link, with the header of macros that Bazel makes of its status files.
#include <string_view>

namespace nccl_exporter::exporter {

extern const char* const kCommit;
// Without --stamp, Bazel says so in the place of each value.
const char* const kCommit =
    std::string_view(BUILD_EMBED_LABEL) == "redacted" ? "" : BUILD_EMBED_LABEL;

}  // namespace nccl_exporter::exporter
