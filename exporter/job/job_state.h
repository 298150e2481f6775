// SPDX-License-Identifier: Apache-2.0
// JobState, what Prometheus knows of one job: its communicators and ranks, who is late or behind,
// and the alerts that fire. Plain data, and the function that asks for it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "exporter/job/job_list.h"
#include "exporter/job/prometheus.h"

namespace nccl_exporter::exporter {

// Nothing has moved on a communicator for so long: longer than two scrapes, so that counts that
// were read at different times are not taken for ranks that are behind.
inline constexpr double kStillSeconds = 60;

struct JobRank {
  std::string rank;  // in the communicator
  std::string global_rank;
  std::string gpu;
  std::string node;
  std::string instance;
  std::string pid;
  std::string pod;
  std::string container;
  bool is_dead = false;       // its process has ended
  bool is_stopped = false;    // its process is stopped
  bool is_quiet = false;      // it has the series of a stalled communicator
  double started = 0;         // collectives
  double last_progress = 0;   // seconds since the epoch; 0: never
  std::string function = {};  // of the oldest operation in flight; empty: none
  double in_flight_since = 0;
  double behind = 0;                      // collectives, where the communicator is still
  bool waits = false;                     // in an operation, on a communicator that is still
  bool waits_elsewhere = false;           // its GPU waits so in another communicator
  std::optional<double> late_share = {};  // of the time that the others wait for it

  // A person looks at it first. One that waits elsewhere is behind because of another.
  bool IsCause() const {
    return is_dead || is_stopped || (behind > 0 && !waits_elsewhere) || late_share.has_value();
  }
};

struct JobCommunicator {
  std::string id;
  std::string name;
  double size = 0;  // ranks, as NCCL says; 0: not known
  std::vector<JobRank> ranks;
  double started = 0;  // collectives, by the rank with the most
  double last_progress = 0;
  bool is_still = false;
};

struct JobAlert {
  std::string name;
  std::string severity;
  std::string comm;  // empty: of no communicator
  std::string comm_name;
  std::string rank;
  std::string global_rank;
  std::string gpu;
  std::string node;
  double since = 0;  // seconds since the epoch; 0: not known
};

struct JobState {
  Job job;
  double time = 0;                             // of the server, seconds since the epoch
  std::vector<JobCommunicator> communicators;  // the largest first
  std::vector<JobAlert> alerts;                // critical ones first, then the longest
  std::optional<double> waiting_gpus;          // lost GPU seconds per second
  uint64_t processes = 0;
  uint64_t nodes = 0;
  bool has_ended = false;  // all its processes have
};

// Nothing if a query fails; then `fault` says why.
std::optional<JobState> JobStateOf(const AskPrometheus& ask, const Job& job, std::string& fault);

}  // namespace nccl_exporter::exporter
