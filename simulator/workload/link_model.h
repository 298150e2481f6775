// SPDX-License-Identifier: Apache-2.0
// Time that data takes on the wire: latency and bandwidth of the simulated machine, after the last
// rank has arrived.
#pragma once

#include <cmath>
#include <cstdint>

#include "proto/collective.h"

namespace nccl_exporter::sim {

struct Link {
  double latency_ns;    // of one hop
  double bytes_per_ns;  // bus bandwidth
};

// About what NVLink and one 400 Gb/s adapter per GPU reach in practice.
inline constexpr Link kWithinNode{3000.0, 340.0};
inline constexpr Link kBetweenNodes{9000.0, 46.0};

constexpr const Link& LinkOf(int nodes) { return nodes > 1 ? kBetweenNodes : kWithinNode; }

inline double CollectiveNs(const Link& link, Function function, uint64_t message_bytes, int ranks) {
  const double hops = 1.0 + std::log2(static_cast<double>(ranks));
  return link.latency_ns * hops +
         BusBytes(function, message_bytes, static_cast<uint32_t>(ranks)) / link.bytes_per_ns;
}

inline double TransferNs(const Link& link, uint64_t message_bytes) {
  return link.latency_ns + static_cast<double>(message_bytes) / link.bytes_per_ns;
}

}  // namespace nccl_exporter::sim
