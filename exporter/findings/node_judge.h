// SPDX-License-Identifier: Apache-2.0
// NodeJudge, the history of one node and the findings about it: for the daemon, and for commands
// that show findings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/findings/finding.h"
#include "exporter/findings/finding_ids.h"
#include "exporter/findings/hangs.h"
#include "exporter/findings/late_ranks.h"
#include "exporter/findings/losses/lost_operations.h"
#include "exporter/findings/thresholds.h"
#include "exporter/ledger/book.h"
#include "exporter/ledger/local_communicators.h"
#include "exporter/ledger/node_history.h"

namespace nccl_exporter::exporter {

// Findings of one user that are shown; the others are counted.
inline constexpr size_t kMostFindingsPerUser = 64;

// The job that a finding is about.
inline JobKey JobKeyOf(const Finding& finding) {
  return finding.communicator ? JobKeyOf(*finding.communicator)
                              : JobKey{finding.uid, finding.job_name, finding.name_space};
}

struct Judgement {
  // The worst first. In each severity users take turns, each with the longest first.
  std::vector<Finding> findings;
  uint64_t left_out = 0;  // beyond kMostFindingsPerUser
  // Extent of the judgement.
  double seconds = 0;                // of history
  uint64_t communicators = 0;        // in use
  uint64_t across_nodes = 0;         // of those: their network is not judged on one node
  uint64_t compared_operations = 0;  // within `seconds`: NodeHistory::ComparedOperations()
  double learning_seconds = 0;       // until all of them can have late ranks
  // Functions, ranks and losses beyond the shares of users in the judge's memory, summed since its
  // start.
  uint64_t not_remembered = 0;
};

// Not thread-safe: its owner locks. A copy may be read on another thread while the original
// records: NodeWatch relies on that.
class NodeJudge {
 public:
  explicit NodeJudge(const Thresholds& times = {})
      : times_(times),
        hangs_(times),
        late_ranks_(times),
        lost_operations_(times),
        ids_(times.hold) {}

  // Adds a step to the history. `monotonic_ns` is its moment, by a clock that is never set. A
  // snapshot that comes sooner than Thresholds::step after the one before is not taken.
  void Record(const Book& book, int64_t monotonic_ns);

  // `node` may be newer than the latest Record(): ages and states are its own, rates those of the
  // history. Without a Record(), only what needs no history is found.
  Judgement Judge(const collector::NodeSnapshot& node) const;

  // Lets the findings of a judgement about the latest Record() keep their ids while they last.
  void Keep(const Judgement& judgement) {
    ids_.Record(judgement.findings, recorded_ns_.value_or(0));
  }

  const NodeHistory& history() const { return history_; }

 private:
  std::set<collector::FileKey> JustEnded(const collector::NodeSnapshot& node) const;

  Thresholds times_;
  NodeHistory history_;
  Hangs hangs_;
  LateRanks late_ranks_;
  LostOperations lost_operations_;
  FindingIds ids_;
  // Steps in a row in which the process had ended, up to kHaltedSnapshots.
  std::map<collector::FileKey, uint32_t> ended_steps_;
  std::optional<int64_t> recorded_ns_;  // monotonic
};

}  // namespace nccl_exporter::exporter
