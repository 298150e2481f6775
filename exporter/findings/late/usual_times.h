// SPDX-License-Identifier: Apache-2.0
// The past of ranks that are unequal by design, such as the stages of a pipeline: they are compared
// with their own usual time, not with each other.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "exporter/findings/late/busy_rates.h"

namespace nccl_exporter::exporter {

// The usual times of one communicator. Not thread-safe.
class UsualTimes {
 public:
  // Takes the time of each rank for one send or receive of its process, as record `number`:
  // comm_rank:nccl_busy_seconds:per_send. The latest `most` records count.
  void Record(const PeerRates& peers, const std::vector<ProcessRates>& processes, int64_t number,
              int64_t most);
  // The median of the records of a rank is its usual time from now on.
  void Settle();
  // Leaves in RankRates::busy what exceeds the usual time, and nothing where that is unknown.
  void SubtractFrom(PeerRates& peers, const std::vector<ProcessRates>& processes) const;

 private:
  struct Rank {
    std::multimap<int64_t, double> per_send;  // seconds, by the number of the record
    std::optional<double> usual;
  };
  std::map<uint64_t, Rank> ranks_;  // by number
};

}  // namespace nccl_exporter::exporter
