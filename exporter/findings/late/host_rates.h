// SPDX-License-Identifier: Apache-2.0
// HostRates, signals of the host in which a late process departs from the others of its job on this
// node, over the newest window. The rules of group nccl_suspects judge the same for all nodes. That
// both happen at the same time proves no cause. Not thread-safe: its owner locks.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "collector/node_snapshot.h"
#include "exporter/findings/thresholds.h"

namespace nccl_exporter::exporter {

class HostRates {
 public:
  explicit HostRates(const Thresholds& times) : times_(times) {}

  // `monotonic_ns` as in NodeHistory::Record.
  void Record(const collector::NodeSnapshot& node, int64_t monotonic_ns);

  // "waits for a CPU 31.0 % of the time, its peers 0.4 %", or that nothing is unusual and what was
  // compared, or that the process cannot be seen. Peers are the other living processes of its job.
  // Empty where nothing could be compared: no peer has signals, or it is seen for less than half a
  // window. `process` is one of `node`.
  std::string Unusual(const collector::NodeSnapshot& node,
                      const collector::ProcessSnapshot& process) const;

 private:
  // By nanosecond.
  std::optional<double> RateOf(const collector::FileKey& file,
                               std::optional<uint64_t> collector::HostSignals::*count) const;

  using Signals = std::map<collector::FileKey, collector::HostSignals>;
  Thresholds times_;
  std::deque<std::pair<int64_t, Signals>> looks_;  // of the window, the oldest first
};

}  // namespace nccl_exporter::exporter
