// SPDX-License-Identifier: Apache-2.0
// The plugin's own version, as the segment's header has it.
#pragma once

namespace nccl_exporter::plugin {

inline constexpr char kPluginVersion[] = "0.1.0";

}  // namespace nccl_exporter::plugin
