// SPDX-License-Identifier: Apache-2.0
// JobState, what Prometheus knows of one job: its communicators and ranks, what the rules have
// recorded of hangs and late ranks, and the alerts that fire. Plain data, and the function that
// asks for it. Nobody is judged here: the rules have done that (docs/alerts.md).
//
// Detail may be scraped seldom or never, and only adds: whether a process has ended or is stopped,
// and times. Times of nodes are converted to the server's clock, or not known.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "exporter/cli/job/job_list.h"
#include "exporter/cli/job/job_place.h"
#include "exporter/cli/job/prometheus.h"

namespace nccl_exporter::exporter {

// Of a process. kHalted is one of the next two: only detail distinguishes them.
enum class Life : uint8_t { kLives, kHalted, kStopped, kEnded };

struct JobRank {
  JobPlace place;
  Life life = Life::kLives;
  bool waits = false;  // by the rules
  // While nothing has started or completed on this rank for some seconds; else not known.
  std::optional<double> progress = {};   // starts and completions
  std::optional<double> started = {};    // collectives
  std::optional<double> in_flight = {};  // operations; not known where completion is not seen
  std::string function = {};             // of the oldest of them
  double in_flight_since = 0;            // seconds since the epoch; 0: not known
};

// kUnknown where the rules have no series of it, or completion is not seen. kHeld: in an operation,
// of which the rules do not say that it waits.
enum class Motion : uint8_t { kWaits, kHeld, kUnknown, kMoves, kIdle, kUnused, kEnded };

struct JobCommunicator {
  std::string id;
  std::string name;
  double size = 0;  // ranks, as NCCL says; 0: not known
  std::vector<JobRank> ranks;
  // Of its progress, by the rules, within half of their --hang-threshold.
  std::optional<double> changes = {};
  std::optional<double> started = {};  // collectives, by the rank with the most
  double last_progress = 0;            // seconds since the epoch; 0: not known

  Motion motion() const;
  bool LacksRanks() const { return size > static_cast<double>(ranks.size()); }
};

// Of two times, where 0 is not known.
inline double EarlierKnown(double a, double b) { return a > 0 && (b <= 0 || a < b) ? a : b; }

struct JobAlert {
  std::string name;
  std::string severity;
  std::string function;  // empty: it has none
  JobPlace place;
  double since = 0;  // seconds since the epoch; 0: not known
};

// One series of a rule.
struct Recorded {
  JobPlace place;
  double value = 0;
};

struct JobState {
  Job job;
  double time = 0;                             // of the server, seconds since the epoch
  std::vector<JobCommunicator> communicators;  // the largest first
  std::vector<JobAlert> alerts;                // critical ones first, then the longest
  std::vector<Recorded> culprits;              // of a hang; the value is what each is behind by
  std::vector<Recorded> late_ranks;            // the value is the share of the time
  std::vector<Recorded> late_nodes;
  std::set<GpuKey> missing;            // that no daemon has any more
  std::optional<double> waiting_gpus;  // lost GPU seconds per second
  uint64_t processes = 0;
  uint64_t nodes = 0;
  bool is_judged = false;  // the rules have series of it
  double rules_age = 0;    // seconds since these were evaluated
  bool is_timed = false;   // and of its time in kernels, now
  // Why no rank has GPU times, by the names of timing_reason; empty where the rules do not say so.
  std::vector<std::string> untimed_reasons;
};

// Nothing if a query fails; then `fault` says why.
std::optional<JobState> JobStateOf(const AskPrometheus& ask, const Job& job, std::string& fault);

}  // namespace nccl_exporter::exporter
