// SPDX-License-Identifier: Apache-2.0
#include "exporter/job/job_list.h"

#include <fmt/format.h>

#include <algorithm>

#include "exporter/findings/words.h"

namespace nccl_exporter::exporter {
namespace {

// In the line that says which jobs there are.
constexpr size_t kMostNamed = 6;

constexpr std::string_view kLabels = "cluster, namespace, slurm_job_id, slurm_job_name, uid";

QueryAnswer AskJobs(const AskPrometheus& ask, const std::string& matchers) {
  return ask(fmt::format("count by ({0}) (group by ({0}, {1}) (nccl_rank_info{{{2}}}))", kLabels,
                         kProcessLabels, matchers));
}

std::vector<Job> JobsOf(const std::vector<Sample>& samples, const std::string& pod_prefix) {
  std::vector<Job> jobs;
  for (const Sample& sample : samples) {
    jobs.push_back({.cluster = sample.Label("cluster"),
                    .name_space = sample.Label("namespace"),
                    .slurm_job_id = sample.Label("slurm_job_id"),
                    .uid = sample.Label("uid"),
                    .slurm_job_name = sample.Label("slurm_job_name"),
                    .pod_prefix = pod_prefix,
                    .processes = sample.value > 0 ? static_cast<uint64_t>(sample.value) : 0});
  }
  const auto key = [](const Job& job) {
    return std::tie(job.cluster, job.name_space, job.slurm_job_id, job.uid);
  };
  std::ranges::sort(jobs, {}, key);
  // Steps of one job may have several names: the labels of the rules are what makes a job.
  std::vector<Job> merged;
  for (Job& job : jobs) {
    if (merged.empty() || key(merged.back()) != key(job)) {
      merged.push_back(std::move(job));
    } else {
      merged.back().processes += job.processes;
    }
  }
  return merged;
}

bool Has(const Job& job, const std::string& wanted) {
  return wanted == job.slurm_job_id || wanted == job.slurm_job_name || wanted == job.name_space ||
         wanted == job.cluster;
}

std::vector<Job> Matching(std::vector<Job> jobs, const std::vector<std::string>& wanted) {
  std::erase_if(jobs, [&](const Job& job) {
    return !std::ranges::all_of(wanted, [&](const std::string& one) { return Has(job, one); });
  });
  return jobs;
}

std::string NoSuchJob(const std::vector<std::string>& wanted, const std::vector<Job>& jobs) {
  std::string names;
  for (size_t i = 0; i < std::min(jobs.size(), kMostNamed); ++i)
    names += (i == 0 ? "" : "; ") + jobs[i].Text();
  if (jobs.size() > kMostNamed) names += fmt::format("; and {} more", jobs.size() - kMostNamed);
  std::string text;
  for (const std::string& one : wanted) text += (text.empty() ? "'" : ", '") + Printable(one) + "'";
  return fmt::format("no job is {}; there {} {}", text, jobs.size() == 1 ? "is" : "are", names);
}

}  // namespace

std::string Job::Matchers() const {
  return fmt::format("cluster={},namespace={},slurm_job_id={},uid={}", Quoted(cluster),
                     Quoted(name_space), Quoted(slurm_job_id), Quoted(uid));
}

std::string Job::PodMatchers() const {
  if (pod_prefix.empty()) return Matchers();
  return Matchers() + ",pod=~" + Quoted(Literal(pod_prefix) + "(-.*)?");
}

std::string Job::Text() const {
  std::string text = slurm_job_id.empty()
                         ? pod_prefix.empty() ? "the job" : "pods " + Printable(pod_prefix)
                         : "job " + Printable(slurm_job_id);
  if (!slurm_job_name.empty()) text += " (" + Printable(slurm_job_name) + ")";
  if (!uid.empty()) text += " of user " + Printable(uid);
  if (!name_space.empty()) text += " in namespace " + Printable(name_space);
  if (!cluster.empty()) text += " in cluster " + Printable(cluster);
  return text;
}

JobChoice ChooseJob(const AskPrometheus& ask, const std::vector<std::string>& wanted) {
  const QueryAnswer answer = AskJobs(ask, "");
  if (!answer.fault.empty()) return {.jobs = {}, .fault = answer.fault};
  const std::vector<Job> all = JobsOf(answer.samples, "");
  if (all.empty())
    return {.jobs = {},
            .fault = "there is no nccl_rank_info: no daemon is scraped, or no job runs"};
  std::vector<Job> matching = Matching(all, wanted);
  if (!matching.empty()) return {.jobs = std::move(matching), .fault = ""};
  const QueryAnswer pods = AskJobs(ask, "pod=~" + Quoted(Literal(wanted.back()) + "(-.*)?"));
  if (!pods.fault.empty()) return {.jobs = {}, .fault = pods.fault};
  matching = Matching(JobsOf(pods.samples, wanted.back()), {wanted.begin(), wanted.end() - 1});
  if (matching.empty()) return {.jobs = {}, .fault = NoSuchJob(wanted, all)};
  return {.jobs = std::move(matching), .fault = ""};
}

}  // namespace nccl_exporter::exporter
