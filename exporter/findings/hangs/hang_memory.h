// SPDX-License-Identifier: Apache-2.0
// HangMemory, the ranks that were seen in the communicators of the latest snapshot, those that are
// gone included. Not thread-safe: its owner locks.
//
// It has at most kMaxAbsentRanks that are gone. Users share these (exporter/ledger/fair_shares.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "collector/node_snapshot.h"

namespace nccl_exporter::exporter {

class WaitGraph;

inline constexpr size_t kMaxAbsentRanks = collector::kMaxCommunicators;

// Copy of a rank as it was seen last, about 1 KB.
struct SeenRank {
  collector::ProcessSnapshot process;            // without communicators
  collector::CommunicatorSnapshot communicator;  // without counts of functions and operations
  // At the latest Record(). One snapshot may lack a rank whose slot changed while it was read.
  bool is_absent = false;
  // In a hang that goes on. If the rank ends later, it is not the cause.
  bool has_waited = false;
  int64_t ended_realtime_ns = 0;  // when its process was first seen to have ended; 0: it lives
  // Record()s in a row, up to the latest, in which it was dead or stopped and others waited for it.
  uint32_t halted_snapshots = 0;
};

class HangMemory {
 public:
  using Ranks = std::map<uint64_t, SeenRank>;  // by rank in the communicator

  // Takes what `graph` has found over this memory. `graph` may be invalid then.
  void Record(const WaitGraph& graph);

  // Absent ranks that found no place, summed since the start.
  uint64_t forgotten() const { return forgotten_; }

  // The longest time for which a GPU waited in the communicator, as Record() saw it.
  int64_t LongestWaitNs(const collector::CommunicatorKey& key) const {
    const auto found = longest_waits_ns_.find(key);
    return found == longest_waits_ns_.end() ? 0 : found->second;
  }

  // For how long Record() has seen the communicator abandoned. Nothing if it did not see it.
  std::optional<int64_t> AbandonedForNs(const collector::CommunicatorKey& key,
                                        int64_t taken_realtime_ns) const {
    const auto found = abandoned_since_realtime_ns_.find(key);
    if (found == abandoned_since_realtime_ns_.end()) return std::nullopt;
    return taken_realtime_ns - found->second;
  }

  // Empty where the communicator was not seen. Valid until Record().
  const Ranks& Of(const collector::CommunicatorKey& key) const {
    static const Ranks kNone;
    const auto found = communicators_.find(key);
    return found == communicators_.end() ? kNone : found->second;
  }

 private:
  // Forgets the absent ranks beyond the shares of users.
  void Fit();

  std::map<collector::CommunicatorKey, Ranks> communicators_;
  std::map<collector::CommunicatorKey, int64_t> longest_waits_ns_;
  std::map<collector::CommunicatorKey, int64_t> abandoned_since_realtime_ns_;
  uint64_t forgotten_ = 0;
};

}  // namespace nccl_exporter::exporter
