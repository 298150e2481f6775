// SPDX-License-Identifier: Apache-2.0
// HangMemory, the ranks that were seen in the communicators of the latest snapshot, those that are
// gone included. Not thread-safe: its owner locks.
//
// It has at most kMaxAbsentRanks that are gone. Users share these (exporter/ledger/fair_shares.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "collector/node_snapshot.h"

namespace nccl_exporter::exporter {

struct GraphJob;

inline constexpr size_t kMaxAbsentRanks = collector::kMaxCommunicators;

// Copy of a rank as it was seen last, about 1 KB, and of its process, which may be 7 KB: the ranks
// of a process share that.
struct SeenRank {
  std::shared_ptr<const collector::ProcessSnapshot> process;  // without communicators
  collector::CommunicatorSnapshot communicator;  // without counts of functions and operations
  // At the latest Record(). One snapshot may lack a rank whose slot changed while it was read.
  bool is_absent = false;
  // In a hang that goes on. If the rank ends later, it is not the cause.
  bool has_waited = false;
  int64_t ended_realtime_ns = 0;  // when its process was first seen to have ended; 0: it lives
  // Record()s in a row, up to the latest, in which it was dead or stopped and others waited for it.
  uint32_t halted_snapshots = 0;
};

using SeenRanks = std::map<uint64_t, SeenRank>;  // by rank in the communicator

struct SeenCommunicator {
  SeenRanks ranks;                          // none where the communicator was not seen
  int64_t longest_wait_ns = 0;              // for which a GPU waited in it
  int64_t abandoned_since_realtime_ns = 0;  // 0: it is not abandoned
};

class HangMemory {
 public:
  // Takes what `graphs` have found over this memory. They may be invalid then.
  void Record(const std::vector<GraphJob>& graphs, int64_t taken_realtime_ns);

  // Absent ranks that found no place, summed since the start.
  uint64_t forgotten() const { return forgotten_; }

  // Valid until Record().
  const SeenCommunicator& Of(const collector::CommunicatorKey& key) const {
    static const SeenCommunicator kNone;
    const auto found = communicators_.find(key);
    return found == communicators_.end() ? kNone : found->second;
  }

 private:
  // Forgets the absent ranks beyond the shares of users.
  void Fit();

  std::map<collector::CommunicatorKey, SeenCommunicator> communicators_;
  uint64_t forgotten_ = 0;
};

}  // namespace nccl_exporter::exporter
