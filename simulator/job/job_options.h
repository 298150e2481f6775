// SPDX-License-Identifier: Apache-2.0
// Everything that the command line of nccl-sim says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "simulator/release/play_options.h"
#include "simulator/workload/incident.h"
#include "simulator/workload/workload.h"

namespace nccl_exporter::sim {

// Death of the process of one rank.
struct Kill {
  int rank = 0;
  int64_t step = 0;
  bool is_in_flight = false;
};

// Options that the first process passes to those that it starts.
struct ChildOptions {
  int process = 0;
  int64_t epoch_monotonic_ns = 0;
  std::string truth_part;  // file for the ground truth of this process
};

struct JobOptions {
  PlayOptions play;
  WorkloadOptions workload;
  int64_t steps = 20;
  double steps_per_second = 10;
  bool is_real_time = false;
  int64_t node = -1;  // -1: all
  std::string plugin;
  std::string cuda;
  std::string segment_directory;
  std::string slurm_job_id;
  std::vector<std::string> environment;  // NAME=VALUE
  struct OfRanks {
    int first = 0;
    int last = 0;
    std::string pair;  // NAME=VALUE
  };
  std::vector<OfRanks> environment_of_ranks;
  std::string ground_truth_file;
  std::vector<std::string> faults;  // as they are written
  std::vector<std::string> incident_texts;
  std::vector<Incident> incidents;
  int log_level = 2;
  double hold_seconds = 0;
  bool finalizes = true;
  std::optional<Kill> kill;
  std::optional<ChildOptions> child;

  double compute_share = 0.4;  // part of the requested period in which the GPUs compute

  int64_t compute_ns() const {
    return static_cast<int64_t>(compute_share * 1e9 / steps_per_second);
  }
};

// Nothing, or the exit code of a program that shall do no more: 0 after --help, 2 after a line
// about what is wrong.
std::optional<int> ParseJobOptions(int argc, const char* const* argv, JobOptions& options);

// The text of --help.
std::string JobOptionsHelp();

}  // namespace nccl_exporter::sim
