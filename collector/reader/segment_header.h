// SPDX-License-Identifier: Apache-2.0
// The header of a segment, from a private copy: is it one that we can read, and what does it say of its process?
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "collector/node_snapshot.h"
#include "proto/shm_layout.h"

namespace nccl_exporter {

struct SegmentFault {
  SegmentError error = SegmentError::kReadFailed;
  std::string detail;  // for messages
};

// A later minor may append to the header, but hardly more than this; with the limits in shm_layout.h it keeps every
// offset below 2^30, so that no sum of sizes overflows.
inline constexpr uint64_t kHeaderLimitBytes = 65536;

// What keeps us from using a segment whose version word is not 0. `copied_bytes` of `header` came from the file, the
// rest is zeros.
std::optional<SegmentFault> FindFault(const layout::SegmentHeader& header, uint64_t copied_bytes, uint64_t file_bytes);

// What a header without fault says, with `communicators` left empty. The user is the file's owner, as the kernel tells
// us: the writer knows itself by the number of its own user namespace, and may write any.
ProcessSnapshot DescribeProcess(const layout::SegmentHeader& header, uint64_t owner_uid);

}  // namespace nccl_exporter
