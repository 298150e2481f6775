// SPDX-License-Identifier: Apache-2.0
// The jobs that a Prometheus knows, and the one that a person means. For any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "exporter/cli/job/prometheus.h"

namespace nccl_exporter::exporter {

// All ranks with the same job labels of the rules (generate-rules --job-labels), and the same
// owner.
struct Job {
  std::string cluster;
  std::string name_space;
  std::string nccl_job;
  std::string uid;
  // Of Slurm's job, for people: each step of a job may have its own.
  std::vector<std::string> slurm_job_names = {};
  // Of names of pods: the job is these alone. Empty: it is not chosen by pods.
  std::string pod_prefix = {};
  uint64_t processes = 0;

  // Matchers of its job labels, without braces; with those of its pods, for series that have pods.
  std::string Matchers() const;
  std::string PodMatchers() const;
  std::string NamesText() const;  // "llm-7b, eval"
  std::string Text() const;       // "job 4711 (llm-7b) of user 1000 in namespace research"
};

// What a person says of a job. All of it must be true.
struct WantedJob {
  // Each is a label of the job: its Slurm id or name, its namespace or its cluster. An empty one:
  // id, namespace and cluster are among the others here, or the job has none. The last one that is
  // not empty may also be the beginning of its pods' names, up to a hyphen or the end.
  std::vector<std::string> labels = {};
  std::string uid = {};  // of its owner; empty: any
};

struct JobChoice {
  std::vector<Job> jobs;  // that are wanted; all where nothing is
  std::string fault;      // why there are none
};

JobChoice ChooseJob(const AskPrometheus& ask, const WantedJob& wanted);

}  // namespace nccl_exporter::exporter
