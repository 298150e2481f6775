// SPDX-License-Identifier: Apache-2.0
// Job, one of those that a Prometheus knows: by its labels, as the rules group ranks. Pure, for any
// thread.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
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

// All jobs that ranks are of. Sets `time`, that of the server.
std::vector<Job> JobsOf(const Samples& samples, double& time);

// Those with these labels, where an empty one is absent.
std::vector<Job> Matching(std::vector<Job> jobs, const SampleLabels& wanted);

// Why there is no job of these labels.
std::string NoSuchJob(const SampleLabels& wanted, const std::vector<Job>& jobs);

}  // namespace nccl_exporter::exporter
