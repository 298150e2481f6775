// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/job/job_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "exporter/findings/words.h"

namespace nccl_exporter::exporter {
namespace {

constexpr std::string_view kWaiting = "comm_rank:nccl_hang:waiting",
                           kProgress = "comm:nccl_progress:changes";
constexpr std::array<std::string_view, 3> kAlertSeverities{"critical", "warning", "info"};
constexpr size_t kMostNamed = 6;  // jobs in the line that says which there are

// Those with the job's labels, and those of targets at which its ranks are or were.
std::string FiringAlerts(const Job& job) {
  return fmt::format(
      "ALERTS{{alertstate=\"firing\",alertname=~\"NCCL.+\",{0}}} or "
      "ALERTS{{alertstate=\"firing\",alertname=~\"NCCLExporter(Down|SeriesDropped|"
      "SegmentsUnusable)\"}} and on (instance) (nccl_rank_info{{{0}}} or "
      "comm_rank:nccl_rank:missing{{{0}}})",
      job.Matchers());
}

// Two users or clusters may have a target of one name.
bool IsOfAnother(const Sample& alert, const Job& job) {
  return std::ranges::any_of(job.labels, [&](const auto& label) {
    const std::string& value = alert.Label(label.first);
    return !value.empty() && value != label.second;
  });
}

// Ranks are texts of digits: by number, and others by text.
std::tuple<uint64_t, std::string> Order(const std::string& text) {
  uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return {number, text};
}

template <typename Names>
auto Place(const Names& names, const std::string& name) {
  return std::ranges::find(names, name) - names.begin();
}

}  // namespace

std::string Job::Matchers() const {
  std::string text;
  for (const auto& [name, value] : labels)
    text += (text.empty() ? "" : ",") + name + '=' + Quoted(value);
  return text;
}

std::string Job::NamesText() const { return Printable(fmt::format("{}", fmt::join(names, ", "))); }

std::string Job::Text() const {
  const auto part = [&](const char* before, const char* label) {
    const std::string& value = labels.at(label);
    return value.empty() ? "" : before + Printable(value);
  };
  return (labels.at("nccl_job").empty() ? "the job" : part("job ", "nccl_job")) +
         (names.empty() ? "" : " (" + NamesText() + ")") + part(" of user ", "uid") +
         part(" in namespace ", "namespace") + part(" in cluster ", "cluster");
}

std::vector<Job> JobsOf(const AskSamples& ask, double& time) {
  // The processes of several pods on a node may all be pid 1.
  const Samples samples =
      ask(fmt::format("count by ({0}) (group by ({0}, instance, pod, container, pid, global_rank) "
                      "(nccl_rank_info))",
                      "cluster, namespace, nccl_job, uid, slurm_job_name"));
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

JobReport ReportOf(const AskSamples& ask, const Job& job, double time) {
  JobReport report{.job = job, .time = time, .alerts = {}, .recorded = {}};
  report.alerts = ask(
      fmt::format("(ALERTS_FOR_STATE{{alertname=~\"NCCL.+\"}} and ignoring (alertstate) ({0})) or "
                  "ignoring (alertstate) ({0})",
                  FiringAlerts(job)));
  std::erase_if(report.alerts, [&](const Sample& alert) { return IsOfAnother(alert, job); });
  for (Sample& alert : report.alerts) {
    for (const char* const label : {"__name__", "alertstate"}) alert.labels.erase(label);
  }
  std::ranges::stable_sort(report.alerts, {}, [](const Sample& alert) {
    return std::tuple(Place(kAlertSeverities, alert.Label("severity")), alert.value,
                      Order(alert.Label("global_rank")));
  });
  // In a hang of thousands of ranks, those that wait are counted by communicator.
  report.recorded = ask(fmt::format(
      "{{__name__=~\"{0}\",__name__!=\"{1}\",{2}}} or count by (__name__, comm, comm_name) "
      "({1}{{{2}}})",
      fmt::join(kRecorded, "|"), kWaiting, job.Matchers()));
  std::ranges::stable_sort(report.recorded, {}, [](const Sample& sample) {
    const std::string& name = sample.Label("__name__");
    return std::tuple(Place(kRecorded, name), name == kProgress ? sample.value : -sample.value,
                      Order(sample.Label("global_rank")), Order(sample.Label("rank")));
  });
  for (const Sample& sample :
       ask(fmt::format("max(timestamp({}{{{}}}))", kProgress, job.Matchers())))
    report.rules_evaluated = sample.value;
  return report;
}

}  // namespace nccl_exporter::exporter
