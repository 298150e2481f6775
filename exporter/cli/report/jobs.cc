// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/report/jobs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "exporter/findings/words.h"

namespace nccl_exporter::exporter {
namespace {

constexpr size_t kMostNamed = 6;  // jobs in the line that says which there are

SampleLabels JobLabelsOf(const Sample& sample) {
  SampleLabels labels;
  for (const char* const label : kJobLabels) labels[label] = sample.Label(label);
  return labels;
}

std::vector<Job> ListOf(std::map<SampleLabels, Job> jobs) {
  std::vector<Job> list;
  for (auto& [labels, job] : jobs) list.push_back(std::move(job));
  return list;
}

std::string MatchersOf(const SampleLabels& labels) {
  std::string text;
  for (const auto& [name, value] : labels)
    text += (text.empty() ? "" : ",") + name + '=' + Quoted(value);
  return text;
}

}  // namespace

bool Job::Has(const SampleLabels& wanted) const {
  return std::ranges::all_of(wanted,
                             [&](const auto& label) { return Label(label.first) == label.second; });
}

std::string Job::Matchers() const { return MatchersOf(labels); }

std::string Job::NamesText() const { return Printable(fmt::format("{}", fmt::join(names, ", "))); }

std::string Job::Text() const {
  const auto part = [&](const char* before, const char* label) {
    const std::string& value = Label(label);
    return value.empty() ? "" : before + Printable(value);
  };
  return (Label("nccl_job").empty() ? "the job" : part("job ", "nccl_job")) +
         (names.empty() ? "" : " (" + NamesText() + ")") + part(" of user ", "uid") +
         part(" in namespace ", "namespace") + part(" in cluster ", "cluster");
}

std::string RangeText(double seconds) {
  return fmt::format("[{}ms]", std::max(1.0, std::ceil(seconds * 1e3)));
}

std::vector<Job> JobsOf(const AskSamples& ask, const SampleLabels& wanted, const TimeSpan& time) {
  // The processes of several pods on a node may all be pid 1.
  const Samples samples = ask(
      fmt::format("count by ({0}, slurm_job_name) (group by ({0}, slurm_job_name, instance, pod, "
                  "container, pid, global_rank) (last_over_time(nccl_rank_info{{{1}}}{2})))",
                  kJobList, MatchersOf(wanted), RangeText(time.seconds())),
      time.to);
  std::map<SampleLabels, Job> jobs;
  for (const Sample& sample : samples) {
    SampleLabels labels = JobLabelsOf(sample);
    Job& job = jobs.try_emplace(labels, Job{.labels = labels}).first->second;
    if (!sample.Label("slurm_job_name").empty()) job.names.insert(sample.Label("slurm_job_name"));
    job.processes += sample.value > 0 ? static_cast<uint64_t>(sample.value) : 0;
  }
  return ListOf(std::move(jobs));
}

void AddTroubles(const AskSamples& ask, const TimeSpan& time, std::vector<Job>& jobs) {
  const auto each = [&](const std::string& expression, const auto& change) {
    for (const Sample& sample :
         ask(fmt::format("{}{}))", expression, RangeText(time.seconds())), time.to)) {
      const auto job = std::ranges::find(jobs, JobLabelsOf(sample), &Job::labels);
      if (job != jobs.end()) change(*job, sample);
    }
  };
  std::map<SampleLabels, size_t> places;  // of jobs with an alert
  for (const char* const severity : {"critical", "warning"}) {
    each(fmt::format("group by ({}, alertname) (last_over_time(ALERTS{{alertstate=\"firing\","
                     "alertname=~\"NCCL.+\",severity=\"{}\"}}",
                     kJobList, severity),
         [&](Job& job, const Sample& alert) {
           if (places.try_emplace(job.labels, places.size()).second)
             job.trouble = alert.Label("alertname");
         });
  }
  each(fmt::format("sum by ({}) (avg_over_time(job:nccl_waiting_gpu_seconds:rate", kJobList),
       [](Job& job, const Sample& waiting) { job.waiting_gpus = waiting.value; });
  std::ranges::stable_sort(jobs, {}, [&](const Job& job) {
    const auto place = places.find(job.labels);
    return std::tuple(place == places.end() ? jobs.size() : place->second, -job.waiting_gpus);
  });
}

Job JobOf(const collector::ProcessSnapshot& process) {
  return {.labels = {{"nccl_job", process.JobName()},
                     {"uid", std::to_string(process.uid)},
                     {"namespace", process.Identity("POD_NAMESPACE")},
                     {"cluster", ""}}};
}

std::vector<Job> JobsOf(const collector::NodeSnapshot& node) {
  std::map<SampleLabels, Job> jobs;
  for (const collector::ProcessSnapshot& process : node.processes) {
    const Job of = JobOf(process);
    Job& job = jobs.try_emplace(of.labels, of).first->second;
    if (const std::string& name = process.Identity("SLURM_JOB_NAME"); !name.empty())
      job.names.insert(name);
    ++job.processes;
  }
  return ListOf(std::move(jobs));
}

std::string NoSuchJob(const SampleLabels& wanted, const std::vector<Job>& jobs) {
  std::string text, names;
  for (const auto& [name, value] : wanted)
    text += fmt::format("{} {}='{}'", text.empty() ? "" : ",", name, Printable(value));
  if (jobs.empty())
    return "there is no job of ranks in this time: no daemon was scraped, or no job ran";
  for (size_t i = 0; i < std::min(jobs.size(), kMostNamed); ++i)
    names += (i == 0 ? "" : "; ") + jobs[i].Text();
  if (jobs.size() > kMostNamed) names += fmt::format("; and {} more", jobs.size() - kMostNamed);
  return fmt::format("no job has{}; there {} {}", text, jobs.size() == 1 ? "is" : "are", names);
}

}  // namespace nccl_exporter::exporter
