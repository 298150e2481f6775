// SPDX-License-Identifier: Apache-2.0
// LateRanks, ranks that the others of a communicator wait for again and again: the rules of group
// nccl_stragglers (docs/alerts.md) for the ranks of this node.
//
// A judgement takes some ranks for late (late_candidates.h). A finding needs several of them
// (docs/alerts.md, "Proof"). They belong to a GPU of a process, so they survive its communicators.
// A process that was followed for less than `warm_up` is not late.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/findings/finding.h"
#include "exporter/findings/late/host_rates.h"
#include "exporter/findings/late/late_candidates.h"
#include "exporter/findings/late/usual_times.h"
#include "exporter/findings/thresholds.h"
#include "exporter/ledger/node_history.h"

namespace nccl_exporter::exporter {

// A rank that was found late, with the measures of the latest judgement that found it late.
struct LateRank : LateCandidate {
  int64_t since_realtime_ns = 0;  // its first judgement of the run
  int64_t found_realtime_ns = 0;  // the latest judgement that found it
  int late_judgements = 0;        // of those of Thresholds::late_for()
  LostGpus lost = {};             // of the whole job on this node, by all waits
  std::string unusual = {};       // on its host, at the same time: HostRates::Unusual()
};

// One finding per GPU of a process: of the communicator in which it costs most. Ranks that are not
// on `node` any more, or whose process has ended, are left out. A pure function, for any thread.
std::vector<Finding> LateFindings(const collector::NodeSnapshot& node,
                                  const std::vector<LateRank>& late, const Thresholds& times);

// Not thread-safe: its owner locks.
class LateRanks {
 public:
  explicit LateRanks(const Thresholds& times) : times_(times), host_(times) {}

  // Judges the newest window of `history`, if the judgement before is an interval ago.
  // `monotonic_ns` as in NodeHistory::Record, which comes first. Missed intervals count as
  // judgements that found no rank late.
  void Record(const collector::NodeSnapshot& node, const NodeHistory& history,
              int64_t monotonic_ns);

  std::vector<Finding> Findings(const collector::NodeSnapshot& node) const;
  // Seconds until the process and the communicator that were met last can be judged; 0: all can.
  // Communicators with one rank on this node never can, and do not count.
  double LearningSeconds() const;

 private:
  // One bit per judgement, the latest is bit 0.
  using Judgements = uint64_t;

  // Memory of a GPU in all communicators, those that are gone included.
  struct ProcessMemory {
    int64_t first_seen_ns = 0;
    int64_t last_seen_ns = 0;
    bool is_compared = false;  // a communicator of it has several ranks here
    Judgements straggler = 0;
    int64_t late_since_realtime_ns = 0;  // the first judgement of the run
    std::vector<double> costs;  // as straggler, of the judgements of `hold`, the latest first
  };
  struct JobMemory {
    Judgements straggler = 0;     // in which any of its ranks here was one
    Judgements late = 0;          // in which any was late, the last to enter, or waited less
    bool has_more_nodes = false;  // so that ranks of others may be late as often, unseen
    // Share of the time that the median process here is in kernels, by judgement, the latest first.
    std::vector<double> busy;
  };
  struct RankMemory {
    GpuOfProcess gpu;
    Judgements late = 0;  // victims included
    Judgements straggler = 0;
    Judgements last_arriver = 0;
    LateRank taken;              // as the latest judgement took it for late
    LateRank shown;              // as it was found late
    int64_t shown_until_ns = 0;  // 0: it was never found late
  };
  struct CommunicatorMemory {
    int64_t first_seen_ns = 0;
    int64_t last_seen_ns = 0;
    bool is_compared = false;  // it has several ranks here
    std::map<uint64_t, RankMemory> ranks;
    UsualTimes usual;  // of ranks that are unequal by design
  };

  void Follow(const collector::NodeSnapshot& node);
  void BeginJudgement(int judgements_passed);
  // Null until the communicator was followed for `window`: its first calls, in which ranks differ
  // by seconds, and the backlog of its completion ring are not judged.
  CommunicatorMemory* Settled(const collector::CommunicatorKey& key, Thresholds::Ns window);
  void FollowJobs(const NodeRates& rates);
  // Compares ranks that are unequal by design with their past.
  void SubtractUsual(NodeRates& rates);
  void Judge(LateCandidate candidate, int64_t realtime_ns);
  void Confirm(const collector::NodeSnapshot& node);
  // Whether processes of the job wait more now than in its even judgements, by a part of `cost`.
  // They do not if the load of a rank elsewhere moved to one of this node. Where ranks here were
  // late in three quarters of the judgements, none moved.
  bool WaitsMore(const JobMemory& job, double cost) const;
  // The judgements of the latest so much time.
  Judgements Latest(Thresholds::Ns time) const;

  Thresholds times_;
  HostRates host_;
  int64_t now_ns_ = 0;
  int64_t next_judgement_ns_ = 0;
  int64_t usual_number_ = -1;  // of the latest record of usual times
  std::map<GpuOfProcess, ProcessMemory> processes_;
  std::map<JobKey, JobMemory> jobs_;
  std::map<collector::CommunicatorKey, CommunicatorMemory> communicators_;
  std::map<JobKey, LostGpus> lost_gpus_;  // of the latest judgement
};

}  // namespace nccl_exporter::exporter
