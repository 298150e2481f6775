// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/job/job_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "exporter/cli/job/job_place.h"
#include "exporter/findings/words.h"

namespace nccl_exporter::exporter {
namespace {

// In the line that says which jobs there are, and of one job's names.
constexpr size_t kMostNamed = 6, kMostNames = 3;

constexpr std::string_view kLabels = "cluster, namespace, nccl_job, slurm_job_name, uid";

QueryAnswer AskJobs(const AskPrometheus& ask, const std::string& matchers) {
  return ask(fmt::format("count by ({0}) (group by ({0}, {1}) (nccl_rank_info{{{2}}}))", kLabels,
                         kProcessLabels, matchers));
}

std::vector<Job> JobsOf(const std::vector<Sample>& samples, const std::string& pod_prefix) {
  std::map<std::array<std::string, 4>, Job> jobs;
  for (const Sample& sample : samples) {
    Job& job = jobs[{sample.Label("cluster"), sample.Label("namespace"), sample.Label("nccl_job"),
                     sample.Label("uid")}];
    job.cluster = sample.Label("cluster");
    job.name_space = sample.Label("namespace");
    job.nccl_job = sample.Label("nccl_job");
    job.uid = sample.Label("uid");
    job.pod_prefix = pod_prefix;
    const std::string& name = sample.Label("slurm_job_name");
    if (!name.empty()) job.slurm_job_names.push_back(name);
    job.processes += sample.value > 0 ? static_cast<uint64_t>(sample.value) : 0;
  }
  std::vector<Job> list;
  for (auto& [key, job] : jobs) {
    std::ranges::sort(job.slurm_job_names);
    list.push_back(std::move(job));
  }
  return list;
}

bool IsNamed(const Job& job, const std::string& name) {
  return std::ranges::count(job.slurm_job_names, name) != 0;
}

bool Has(const Job& job, const std::string& label) {
  return label == job.nccl_job || IsNamed(job, label) || label == job.name_space ||
         label == job.cluster;
}

bool HasOnly(const Job& job, const std::vector<std::string>& labels) {
  const auto is_given = [&](const std::string& label) {
    return label.empty() || std::ranges::count(labels, label) != 0;
  };
  const bool is_id_given =
      is_given(job.nccl_job) ||
      std::ranges::any_of(labels, [&](const std::string& label) { return IsNamed(job, label); });
  return is_id_given && is_given(job.name_space) && is_given(job.cluster);
}

bool Is(const Job& job, const WantedJob& wanted) {
  if (!wanted.uid.empty() && wanted.uid != job.uid) return false;
  return std::ranges::all_of(wanted.labels, [&](const std::string& label) {
    return label.empty() ? HasOnly(job, wanted.labels) : Has(job, label);
  });
}

std::vector<Job> Matching(std::vector<Job> jobs, const WantedJob& wanted) {
  std::erase_if(jobs, [&](const Job& job) { return !Is(job, wanted); });
  return jobs;
}

std::string NoSuchJob(const WantedJob& wanted, const std::vector<Job>& jobs) {
  std::string names;
  for (size_t i = 0; i < std::min(jobs.size(), kMostNamed); ++i)
    names += (i == 0 ? "" : "; ") + jobs[i].Text();
  if (jobs.size() > kMostNamed) names += fmt::format("; and {} more", jobs.size() - kMostNamed);
  std::string text;
  for (const std::string& label : wanted.labels)
    text += (text.empty() ? " is '" : ", '") + Printable(label) + "'";
  if (!wanted.uid.empty())
    text += (text.empty() ? " is of user " : " of user ") + Printable(wanted.uid);
  return fmt::format("no job{}; there {} {}", text, jobs.size() == 1 ? "is" : "are", names);
}

// Takes the last label that is not empty away; empty if there is none.
std::string TakePodPrefix(WantedJob& wanted) {
  const auto last = std::ranges::find_if(wanted.labels.rbegin(), wanted.labels.rend(),
                                         [](const std::string& label) { return !label.empty(); });
  if (last == wanted.labels.rend()) return "";
  std::string prefix = *last;
  wanted.labels.erase(std::next(last).base());
  return prefix;
}

}  // namespace

std::string Job::Matchers() const {
  return fmt::format("cluster={},namespace={},nccl_job={},uid={}", Quoted(cluster),
                     Quoted(name_space), Quoted(nccl_job), Quoted(uid));
}

std::string Job::PodMatchers() const {
  if (pod_prefix.empty()) return Matchers();
  return Matchers() + ",pod=~" + Quoted(Literal(pod_prefix) + "(-.*)?");
}

std::string Job::NamesText() const {
  std::string text;
  for (size_t i = 0; i < std::min(slurm_job_names.size(), kMostNames); ++i)
    text += (i == 0 ? "" : ", ") + Printable(slurm_job_names[i]);
  if (slurm_job_names.size() > kMostNames)
    text += fmt::format(" and {} more", slurm_job_names.size() - kMostNames);
  return text;
}

std::string Job::Text() const {
  std::string text = nccl_job.empty()
                         ? pod_prefix.empty() ? "the job" : "pods " + Printable(pod_prefix)
                         : "job " + Printable(nccl_job);
  if (!slurm_job_names.empty()) text += " (" + NamesText() + ")";
  if (!uid.empty()) text += " of user " + Printable(uid);
  if (!name_space.empty()) text += " in namespace " + Printable(name_space);
  if (!cluster.empty()) text += " in cluster " + Printable(cluster);
  return text;
}

JobChoice ChooseJob(const AskPrometheus& ask, const WantedJob& wanted) {
  const QueryAnswer answer = AskJobs(ask, "");
  if (!answer.fault.empty()) return {.jobs = {}, .fault = answer.fault};
  const std::vector<Job> all = JobsOf(answer.samples, "");
  if (all.empty())
    return {.jobs = {},
            .fault = "there is no nccl_rank_info: no daemon is scraped, or no job runs"};
  std::vector<Job> matching = Matching(all, wanted);
  if (!matching.empty()) return {.jobs = std::move(matching), .fault = ""};
  WantedJob beside = wanted;
  const std::string prefix = TakePodPrefix(beside);
  if (prefix.empty()) return {.jobs = {}, .fault = NoSuchJob(wanted, all)};
  const QueryAnswer pods = AskJobs(ask, "pod=~" + Quoted(Literal(prefix) + "(-.*)?"));
  if (!pods.fault.empty()) return {.jobs = {}, .fault = pods.fault};
  matching = Matching(JobsOf(pods.samples, prefix), beside);
  if (matching.empty()) return {.jobs = {}, .fault = NoSuchJob(wanted, all)};
  return {.jobs = std::move(matching), .fault = ""};
}

}  // namespace nccl_exporter::exporter
