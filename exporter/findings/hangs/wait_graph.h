// SPDX-License-Identifier: Apache-2.0
// WaitGraph, who waits for whom on this node at one moment: the conditions of the rules group
// nccl_hangs over the ranks of one node. docs/alerts.md has the reasons.
//
// Ages are differences of times of one snapshot, which come from CLOCK_MONOTONIC: a clock that is
// set changes nothing. Immutable, and safe to read from any thread while what it points into lives.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/findings/hangs/hang_memory.h"
#include "exporter/findings/thresholds.h"
#include "exporter/ledger/local_communicators.h"

namespace nccl_exporter::exporter {

// A process and one of its GPUs: what waits, or does not.
using GpuOfProcess = std::pair<collector::FileKey, int>;

struct GraphRank {
  RankOnNode rank;                 // as it was seen last, if it is not here
  const SeenRank* seen = nullptr;  // what is remembered; null: nothing
  bool is_here = true;
  bool is_halted = false;  // has ended, or is stopped
  bool waits = false;
  // That it waits in; null: it does not wait, or its completions are not seen.
  const collector::InFlightOperation* operation = nullptr;
  int64_t since_realtime_ns = 0;  // begin of its wait
  // Others wait, and it does not: see docs/alerts.md.
  bool is_behind = false;
  uint64_t behind = 0;  // collectives that the rank with the most on this node has started more
  bool is_culprit = false;
  // In another call than most, or on another communicator.
  bool is_different = false;

  bool Lives() const { return is_here && !is_halted; }
  // Dead or stopped for certain: one that is not here may run where this node does not see it.
  bool HasHalted() const {
    return is_halted || (!is_here && seen != nullptr && seen->ended_realtime_ns != 0);
  }
  GpuOfProcess gpu() const { return {rank.process->file, rank.communicator->gpu_index}; }
};

// Which ranks may be the cause of a wait.
enum class Suspects : uint8_t {
  kAll,
  // Those that were dead or stopped in the latest kHaltedSnapshots. This is strong proof. Ranks
  // that end one after the other at the end of a job are not meant: where completions are not seen,
  // others wait for a dead rank only if they have called an operation more.
  kHalted,
};

struct GraphCommunicator {
  collector::CommunicatorKey key;
  std::vector<GraphRank> ranks;  // by rank; absent ones last
  bool is_complete = false;      // all its ranks are known on this node
  bool may_be_cut = false;       // the daemon has no room for all communicators of this node
  int64_t youngest_ns = 0;       // age of the latest start or completion of any of its ranks here
  bool is_still = false;         // no rank has started or completed anything for half the threshold
  // It is still, and all ranks with an operation in flight have gone on in other communicators: the
  // job has revoked or shrunk it, or waits in it by design. None of its ranks waits.
  bool is_abandoned = false;
  bool has_waited = false;     // a GPU that waits in it has waited for the whole threshold
  int64_t waited_ns = 0;       // the longest of these waits, if it has
  bool is_queued = false;      // a rank of it is in an older operation elsewhere
  bool nobody_behind = false;  // and no rank of the job is the cause
};

// Communicators in use of one job, with a rank that lives. A rank waits for others of its job
// alone, so that jobs are judged apart.
struct GraphJob {
  std::vector<GraphCommunicator> communicators;
  // Of processes that live: the latest progress in any communicator, those included that are
  // finalized. A job may go on in one that it destroys then.
  std::map<GpuOfProcess, int64_t> last_progress_realtime_ns;
};

class WaitGraph {
 public:
  // `threshold` is the age of a hang. Points into `node` and `memory`.
  WaitGraph(const collector::NodeSnapshot& node, const HangMemory& memory,
            const Thresholds& times, std::chrono::nanoseconds threshold,
            Suspects suspects = Suspects::kAll);

  const std::vector<GraphJob>& jobs() const { return jobs_; }
  int64_t taken_realtime_ns() const { return taken_realtime_ns_; }

 private:
  int64_t taken_realtime_ns_;
  std::vector<GraphJob> jobs_;
};

}  // namespace nccl_exporter::exporter
