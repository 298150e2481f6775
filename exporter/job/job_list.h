// SPDX-License-Identifier: Apache-2.0
// The jobs that a Prometheus knows, and the one that a person means. For any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/job/prometheus.h"

namespace nccl_exporter::exporter {

// Labels of a process that are the same in all of its series. Its pid is that of its own PID
// namespace: the processes of several pods on a node may all be pid 1.
inline constexpr std::string_view kProcessLabels = "instance, pod, container, pid, global_rank";

// All ranks with the same job labels of the rules (generate-rules --job-labels), and the same
// owner.
struct Job {
  std::string cluster;
  std::string name_space;
  std::string slurm_job_id;
  std::string uid;
  // Of Slurm's job, for people: a job step may have changed it.
  std::string slurm_job_name = {};
  // Of names of pods: the job is these alone. Empty: it is not chosen by pods.
  std::string pod_prefix = {};
  uint64_t processes = 0;

  // Matchers of its job labels, without braces; with those of its pods, for series that have pods.
  std::string Matchers() const;
  std::string PodMatchers() const;
  std::string Text() const;  // "job 4711 (llm-7b) of user 1000 in namespace research"
};

struct JobChoice {
  std::vector<Job> jobs;  // that `wanted` means; all for an empty one
  std::string fault;      // why there are none
};

// Each of `wanted` must be a label of the job: its Slurm id or name, its namespace or its cluster.
// The last one may also be the beginning of its pods' names, up to a hyphen or the end.
JobChoice ChooseJob(const AskPrometheus& ask, const std::vector<std::string>& wanted);

}  // namespace nccl_exporter::exporter
