// SPDX-License-Identifier: Apache-2.0
// The wait graph: who waits for whom on this node at one moment, by the rules of group nccl_hangs
// (docs/alerts.md). Pure functions, for any thread.
//
// Ages are differences of times of one snapshot: a clock that is set changes nothing.
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

struct GraphRank {
  RankOnNode rank;                 // as it was seen last, if it is not here
  const SeenRank* seen = nullptr;  // in the memory; null: not seen before
  bool is_here = true;
  bool waits = false;
  // The operation that it waits in; null: it does not wait, or its completions are not seen.
  const collector::InFlightOperation* operation = nullptr;
  int64_t since_realtime_ns = 0;  // begin of its wait
  // Others wait, and it does not: see docs/alerts.md.
  bool is_behind = false;
  uint64_t behind = 0;  // collectives fewer than the rank that has started most
  bool is_culprit = false;
  // In another call than most, or on another communicator.
  bool is_different = false;

  bool Lives() const { return is_here && !rank.process->IsHalted(); }
  // Dead or stopped for certain: one that is not here may run where this node does not see it.
  bool HasHalted() const {
    return is_here ? rank.process->IsHalted() : seen != nullptr && seen->ended_realtime_ns != 0;
  }
  GpuOfProcess gpu() const { return rank.gpu(); }
};

// Ranks that may be the cause of a wait.
enum class Suspects : uint8_t {
  kAll,
  // Ranks that were dead or stopped in the latest kHaltedSnapshots, and that a rank waits for whose
  // operation in flight is seen.
  kHalted,
};

struct GraphCommunicator {
  collector::CommunicatorKey key;
  std::vector<GraphRank> ranks;  // by rank; absent ones last
  bool is_complete = false;      // all its ranks are known on this node
  bool may_lack_room = false;    // as in CommunicatorOnNode
  int64_t youngest_ns = 0;       // age of the latest start or completion of any of its ranks here
  bool is_still = false;         // no rank has started or completed anything for half the threshold
  // It is still, and all ranks with an operation in flight have gone on in other communicators: the
  // job has revoked or shrunk it, or waits in it by design. None of its ranks waits.
  bool is_abandoned = false;
  bool has_waited = false;     // a GPU that waits in it has waited for the whole threshold
  int64_t waited_ns = 0;       // the longest of these waits, if it has
  bool is_queued = false;      // a rank of it is in an older operation elsewhere
  bool nobody_behind = false;  // all ranks are inside, and no rank of the job is the cause
};

// Communicators in use of one job, with a rank that lives. A rank waits only for ranks of its job.
struct GraphJob {
  std::vector<GraphCommunicator> communicators;
  // Latest progress of living processes in any communicator, finalized ones included: a job may go
  // on in one that it then destroys. A rank that has left a communicator makes another, and may be
  // late in that one's first operation: creation is progress, too.
  std::map<GpuOfProcess, int64_t> last_progress_realtime_ns;
};

// Communicators in use (CommunicatorsOnNode), with the ranks that have finalized while others have
// not at the end: those may wait for them.
std::vector<CommunicatorOnNode> CommunicatorsWithFinalized(const collector::NodeSnapshot& node);

// The graphs of all jobs of `node`, of `communicators` with finalized ranks. `threshold` is the age
// of a hang, which it had `held` before the snapshot. They point into `node` and `memory`.
std::vector<GraphJob> WaitGraphs(const collector::NodeSnapshot& node,
                                 const std::vector<CommunicatorOnNode>& communicators,
                                 const HangMemory& memory, const Thresholds& times,
                                 std::chrono::nanoseconds threshold, Suspects suspects,
                                 std::chrono::nanoseconds held = {});

// The rules over one job: finds the waits, culprits and other states of its ranks and
// communicators. Ages are those at `at_realtime_ns`. The time grows with ranks plus operations in
// flight, whatever a process wrote into them.
void ApplyWaitRules(GraphJob& job, int64_t at_realtime_ns, const Thresholds& times,
                    std::chrono::nanoseconds threshold, Suspects suspects);

}  // namespace nccl_exporter::exporter
