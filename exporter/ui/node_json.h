// SPDX-License-Identifier: Apache-2.0
// The node as JSON: the contract of /api/v1/node, which docs/api.md describes.
#pragma once

#include <cstdint>
#include <string>

#include "collector/node_snapshot.h"
#include "exporter/node/node_history.h"

namespace nccl_exporter {

// What the daemon knows of itself.
struct DaemonFacts {
  std::string node_name;
  std::string telemetry_path;
  int64_t start_realtime_ns = 0;
};

// Rates and means are over this time.
inline constexpr double kRecentSeconds = 30;

// Operations in flight that are listed for each rank, oldest first; there may be more.
inline constexpr size_t kListedInFlight = 4;

std::string NodeJson(const NodeSnapshot& node, const NodeHistory& history, const DaemonFacts& facts);

}  // namespace nccl_exporter
