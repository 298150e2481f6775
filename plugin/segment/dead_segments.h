// SPDX-License-Identifier: Apache-2.0
// Removes segments that dead processes of this user left in a directory: where no daemon may do it,
// they would fill the memory of the node. At init only.
//
// What is removed is a regular file of our own user, with the name of a segment, whose lock nobody
// holds, and which shows no sign of life for as long as its writer wanted it kept (retention_ns).
// By then a daemon that follows it has served it for that time, or holds it open and goes on.
// Nothing blocks: links, pipes and the like are not opened.
//
// A close of any descriptor of a file drops all locks that the process holds on it. So files that
// this process maps are left alone: they may be segments of another copy of the plugin.
#pragma once

#include <cstdint>

namespace nccl_exporter::plugin {

// In one start: names that are listed, files that are removed or found to live, and slots of theirs
// that are read. Some 50 ms at most.
inline constexpr uint32_t kMostListedNames = 4096;
inline constexpr uint32_t kMostDeadSegments = 64;
inline constexpr uint32_t kMostDeadSlots = 1024;

// `retention_ns`: for files without a complete header.
void RemoveDeadSegments(int directory, uint64_t retention_ns);

}  // namespace nccl_exporter::plugin
