// SPDX-License-Identifier: Apache-2.0
// The jobs that a Prometheus knows, by their labels, as the rules group ranks. JobReport, what it
// has of one: the alerts that fire, and what the rules have recorded of hangs, late ranks and lost
// time. It is shown as it is, and nothing is concluded from it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/cli/job/prometheus.h"

namespace nccl_exporter::exporter {

// The job labels of the rules (generate-rules --job-labels), and the owner.
inline constexpr std::array kJobLabels{"nccl_job", "uid", "namespace", "cluster"};

struct Job {
  SampleLabels labels;               // kJobLabels; those that it lacks are empty
  std::set<std::string> names = {};  // of Slurm's job, for people: each step may have its own
  uint64_t processes = 0;

  std::string Matchers() const;   // of PromQL, without braces
  std::string NamesText() const;  // "eval, llm-7b"
  std::string Text() const;       // "job 4711 (llm-7b) of user 1000 in namespace research"
};

// Series of the rules (deploy/prometheus) that alerts are about, in the order in which they are
// shown. docs/daemon.md says what their values are.
inline constexpr std::array<std::string_view, 16> kRecorded{
    "job:nccl_waiting_gpu_seconds:rate",
    "job:nccl_ranks_untimed:count",
    "process:nccl_hang:culprit",
    "process:nccl_hang:gone",
    "comm_rank:nccl_hang:mismatched",
    "comm:nccl_hang:nobody_behind",
    "comm_rank:nccl_rank:missing",
    "process:nccl_hang:halted",
    "comm:nccl_hang:seconds",
    "comm_rank:nccl_hang:waiting",
    "comm_rank:nccl_straggler:deficit",
    "comm_node:nccl_straggler:deficit",
    "comm_rank:nccl_last_arrivals:share",
    "comm_collective_size:nccl_bus_bandwidth:degraded",
    "comm_rank:nccl_send_network:slow",
    "comm:nccl_progress:changes",
};

struct JobReport {
  Job job;
  double time = 0;             // of the server, seconds since the epoch
  double rules_evaluated = 0;  // likewise; 0: the rules have no series of the job
  // Critical ones first, then those that have lasted the longest. The value is the time since when,
  // or 1 where the server does not have it.
  Samples alerts;
  // In the order of kRecorded, the largest values first; of progress, the smallest.
  Samples recorded;
};

// Answers of one server. Throws std::runtime_error if there is none.
using AskSamples = std::function<Samples(const std::string& query)>;

// All jobs that ranks are of. Sets `time`, that of the server.
std::vector<Job> JobsOf(const AskSamples& ask, double& time);
// Why there is no job of these labels.
std::string NoSuchJob(const SampleLabels& wanted, const std::vector<Job>& jobs);
JobReport ReportOf(const AskSamples& ask, const Job& job, double time);

}  // namespace nccl_exporter::exporter
