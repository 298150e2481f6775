// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/job/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "exporter/findings/words.h"

namespace nccl_exporter::exporter {
namespace {

constexpr size_t kMostNamed = 6;  // in the line that says which jobs there are

}  // namespace

std::string Job::Matchers() const {
  std::string text;
  for (const auto& [name, value] : labels)
    text += (text.empty() ? "" : ",") + name + '=' + Quoted(value);
  return text;
}

std::string Job::NamesText() const {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return Printable(text);
}

std::string Job::Text() const {
  const auto part = [&](const char* before, const char* label) {
    const std::string& value = labels.at(label);
    return value.empty() ? "" : before + Printable(value);
  };
  return (labels.at("nccl_job").empty() ? "the job" : part("job ", "nccl_job")) +
         (names.empty() ? "" : " (" + NamesText() + ")") + part(" of user ", "uid") +
         part(" in namespace ", "namespace") + part(" in cluster ", "cluster");
}

std::vector<Job> JobsOf(const Samples& samples, double& time) {
  std::map<SampleLabels, Job> jobs;
  for (const Sample& sample : samples) {
    time = sample.time;
    SampleLabels labels;
    for (const char* const label : kJobLabels) labels[label] = sample.Label(label);
    Job& job = jobs.try_emplace(labels, Job{.labels = labels}).first->second;
    if (!sample.Label("slurm_job_name").empty()) job.names.insert(sample.Label("slurm_job_name"));
    job.processes += sample.value > 0 ? static_cast<uint64_t>(sample.value) : 0;
  }
  std::vector<Job> list;
  for (auto& [labels, job] : jobs) list.push_back(std::move(job));
  return list;
}

std::vector<Job> Matching(std::vector<Job> jobs, const SampleLabels& wanted) {
  std::erase_if(jobs, [&](const Job& job) {
    return !std::ranges::all_of(
        wanted, [&](const auto& label) { return job.labels.at(label.first) == label.second; });
  });
  return jobs;
}

std::string NoSuchJob(const SampleLabels& wanted, const std::vector<Job>& jobs) {
  if (jobs.empty()) return "there is no nccl_rank_info: no daemon is scraped, or no job runs";
  std::string text, names;
  for (const auto& [name, value] : wanted)
    text += fmt::format("{} {}='{}'", text.empty() ? "" : ",", name, Printable(value));
  for (size_t i = 0; i < std::min(jobs.size(), kMostNamed); ++i)
    names += (i == 0 ? "" : "; ") + jobs[i].Text();
  if (jobs.size() > kMostNamed) names += fmt::format("; and {} more", jobs.size() - kMostNamed);
  return fmt::format("no job has{}; there {} {}", text, jobs.size() == 1 ? "is" : "are", names);
}

}  // namespace nccl_exporter::exporter
