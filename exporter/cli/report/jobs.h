// SPDX-License-Identifier: Apache-2.0
// Job, by the labels by which the rules group ranks, and the jobs that a Prometheus or a node
// knows. Texts of other processes come out as text that a terminal only shows. For any thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/cli/report/prometheus.h"

namespace nccl_exporter::exporter {

// The job labels of the rules (generate-rules --job-labels), and the owner.
inline constexpr std::array kJobLabels{"nccl_job", "uid", "namespace", "cluster"};
inline constexpr const char* kJobList = "cluster, namespace, nccl_job, uid";  // for PromQL

struct Job {
  SampleLabels labels = {};          // kJobLabels; those that it lacks are empty
  std::set<std::string> names = {};  // of Slurm's job, for people: each step may have its own
  uint64_t processes = 0;
  // The worst alert that fires or fired, and GPUs that wait; of a list from Prometheus.
  std::string trouble = {};
  double waiting_gpus = 0;

  const std::string& Label(const std::string& name) const { return LabelIn(labels, name); }
  bool Has(const SampleLabels& wanted) const;
  std::string Matchers() const;   // of PromQL, without braces
  std::string NamesText() const;  // "eval, llm-7b"
  std::string Text() const;       // "job 4711 (llm-7b) of user 1000 in namespace research"
};

// A stretch of time, in seconds since the epoch.
struct TimeSpan {
  double from = 0;
  double to = 0;

  double seconds() const { return to - from; }
};

// Answers of one server. Throws std::runtime_error if there is none.
using AskSamples = std::function<Samples(const std::string& query, double time)>;

// "[5400s]", for a range of PromQL.
std::string RangeText(double seconds);

// Jobs with these labels that ranks were of in this time.
std::vector<Job> JobsOf(const AskSamples& ask, const SampleLabels& wanted, const TimeSpan& time);
// Sets trouble and waiting_gpus, and puts the jobs in trouble first.
void AddTroubles(const AskSamples& ask, const TimeSpan& time, std::vector<Job>& jobs);

// Jobs of this node, ended processes included.
Job JobOf(const collector::ProcessSnapshot& process);
std::vector<Job> JobsOf(const collector::NodeSnapshot& node);

// Why there is no job of these labels, and which there are.
std::string NoSuchJob(const SampleLabels& wanted, const std::vector<Job>& jobs);

}  // namespace nccl_exporter::exporter
