// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/report/report_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "exporter/cli/report/report_text.h"
#include "exporter/findings/words.h"

namespace nccl_exporter::exporter {
namespace {

constexpr double kStep = 60;     // the rules record once a minute
constexpr double kPart = 86400;  // of the time, which a server sums in one query
constexpr size_t kMostLines = 100;

// Labels that only job:nccl_job:info has.
constexpr const char* kNames = "slurm_job_account, slurm_job_name, slurm_job_user, team";

// Alerts that explain waits. The first one that fires counts.
struct Cause {
  const char* name;  // empty: the alert's label `cause`
  const char* alerts;
};
constexpr std::array<Cause, 4> kCauses{{
    {"hang", "NCCLCollectiveHang"},
    {"", "NCCLStragglerSuspect"},
    {"slow network", "NCCLSlowNetworkNode|NCCLBandwidthDegraded"},
    {"late rank", "NCCLStragglerRank|NCCLStragglerNode|NCCLLastArriver"},
}};

std::string NameOf(const std::string& by, const Sample& sample) {
  const auto first = [&](const char* label, const char* other) {
    return sample.Label(sample.Label(label).empty() ? other : label);
  };
  if (by == "team") return first("team", "slurm_job_account");
  if (by == "user") return first("slurm_job_user", "uid");
  Job job{.labels = sample.labels};
  if (const std::string& name = sample.Label("slurm_job_name"); !name.empty()) job.names = {name};
  return job.Text();
}

}  // namespace

std::vector<CostRow> CostsOf(const AskSamples& ask, const std::string& by,
                             const SampleLabels& wanted, const TimeSpan& time) {
  const std::string matchers = Job{.labels = wanted}.Matchers();
  const std::string info = fmt::format("job:nccl_job:info{{{}}}", matchers);
  std::map<std::string, CostRow> rows;
  CostRow fleet{.name = "all"};
  // Calls `add` with the fleet, and with the row of each job.
  const auto sum = [&](const std::string& expression, const auto& add) {
    for (double from = time.from; from < time.to; from += kPart) {
      const double to = std::min(from + kPart, time.to);
      // Without its first second: some servers would count a moment between two parts in both.
      for (const Sample& job : ask(fmt::format("sum_over_time(({})[{:.0f}s:{:.0f}s])", expression,
                                               std::max(to - from - 1, kStep), kStep),
                                   to)) {
        add(fleet, job);
        add(rows[NameOf(by, job)], job);
      }
    }
  };
  sum(info, [&](CostRow& row, const Sample& job) { row.gpu_seconds += job.value * kStep; });
  if (rows.empty())
    throw std::runtime_error("there is no job in this time, or no rule records job:nccl_job:info");
  const auto add_lost = [&](const std::string& waiting, const std::string& name) {
    sum(fmt::format("({}) * on ({}) group_left ({}) (0 * {} + 1)", waiting, kJobList, kNames, info),
        [&](CostRow& row, const Sample& job) {
          row.lost_seconds += job.value * kStep;
          row.causes[name.empty() ? job.Label("cause") : name] += job.value * kStep;
        });
  };
  add_lost(fmt::format("job:nccl_slow_transfer_gpu_seconds:rate{{{}}}", matchers),
           "slow transfers");
  std::string left = fmt::format("job:nccl_waiting_gpu_seconds:rate{{{}}} > 0", matchers);
  for (const Cause& cause : kCauses) {
    const std::string alerts = fmt::format(
        "topk by ({0}) (1, group by ({0}, cause) "
        "(ALERTS{{alertstate=\"firing\",alertname=~\"{1}\"}}))",
        kJobList, cause.alerts);
    add_lost(fmt::format("({}) * on ({}) group_right () {}", left, kJobList, alerts), cause.name);
    left = fmt::format("({}) unless on ({}) {}", left, kJobList, alerts);
  }
  add_lost(left, "uneven work");
  std::vector<CostRow> costs{std::move(fleet)};
  for (auto& [name, row] : rows) {
    row.name = name;
    costs.push_back(std::move(row));
  }
  std::ranges::stable_sort(costs.begin() + 1, costs.end(), std::ranges::greater(),
                           &CostRow::lost_seconds);
  return costs;
}

std::string CostsText(const std::vector<CostRow>& rows, size_t columns) {
  ReportTable table{
      .title = "",
      .columns = {{"WHO", true}, {"GPU TIME"}, {"LOST"}, {"SHARE"}, {"OF ALL"}, {"BY CAUSE", true}},
      .rows = {}};
  for (const CostRow& row : rows) {
    std::vector<std::pair<double, std::string>> causes;
    for (const auto& [cause, lost] : row.causes) causes.emplace_back(-lost, Printable(cause));
    std::ranges::sort(causes);
    std::string by_cause;
    for (const auto& [lost, cause] : causes)
      by_cause += (by_cause.empty() ? "" : ", ") + cause + ' ' + GpuTimeText(-lost);
    table.rows.push_back(
        {row.name.empty() ? "-" : Printable(row.name), GpuTimeText(row.gpu_seconds),
         GpuTimeText(row.lost_seconds), PercentText(row.lost_seconds / row.gpu_seconds),
         PercentText(row.lost_seconds / rows.front().gpu_seconds), std::move(by_cause)});
  }
  return TableText(Trimmed(std::move(table), kMostLines), columns);
}

std::string CostsJson(const std::vector<CostRow>& rows) {
  nlohmann::json list = nlohmann::json::array();
  for (const CostRow& row : rows)
    list.push_back({{"name", row.name},
                    {"gpu_seconds", row.gpu_seconds},
                    {"lost_seconds", row.lost_seconds},
                    {"causes", row.causes}});
  return JsonLine(list);
}

}  // namespace nccl_exporter::exporter
