// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/report/report_costs.h"

#include <fmt/format.h>

#include <algorithm>
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

Costs CostsOf(const AskSamples& ask, const std::string& by, const SampleLabels& wanted,
              const TimeSpan& time) {
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
  sum(info, [](CostRow& row, const Sample& job) { row.gpu_seconds += job.value * kStep; });
  if (rows.empty())
    throw std::runtime_error("there is no job in this time, or no rule records job:nccl_job:info");
  // Rules may distinguish jobs by more labels than the names are joined by.
  sum(fmt::format("sum by ({0}, cause) (job:nccl_lost_gpu_seconds:rate{{{1}}}) * on ({0}) "
                  "group_left ({2}) topk by ({0}) (1, 0 * {3} + 1)",
                  kJobList, matchers, kNames, info),
      [](CostRow& row, const Sample& job) {
        row.knows_losses = true;
        if (job.value <= 0) return;
        row.lost_seconds += job.value * kStep;
        row.causes[job.Label("cause")] += job.value * kStep;
      });
  if (!fleet.knows_losses)
    throw std::runtime_error(
        "no losses are known in this time: no job has GPU times, or no rule records "
        "job:nccl_lost_gpu_seconds:rate");
  Costs costs{.time = time, .rows = {std::move(fleet)}};
  for (auto& [name, row] : rows) {
    row.name = name;
    costs.rows.push_back(std::move(row));
  }
  std::ranges::stable_sort(costs.rows.begin() + 1, costs.rows.end(), std::ranges::greater(),
                           &CostRow::lost_seconds);
  return costs;
}

std::string CostsText(const Costs& costs, size_t columns) {
  ReportTable table{
      .title = "",
      .columns = {{"WHO", true}, {"GPU TIME"}, {"LOST"}, {"SHARE"}, {"OF ALL"}, {"BY CAUSE", true}},
      .rows = {}};
  for (const CostRow& row : costs.rows) {
    std::vector<std::pair<double, std::string>> causes;
    for (const auto& [cause, lost] : row.causes) causes.emplace_back(-lost, Printable(cause));
    std::ranges::sort(causes);
    std::string by_cause;
    for (const auto& [lost, cause] : causes)
      by_cause += (by_cause.empty() ? "" : ", ") + cause + ' ' + GpuTimeText(-lost);
    const std::string unknown = "-";
    table.rows.push_back(
        {row.name.empty() ? unknown : Printable(row.name), GpuTimeText(row.gpu_seconds),
         row.knows_losses ? GpuTimeText(row.lost_seconds) : unknown,
         row.knows_losses ? PercentText(row.lost_seconds / row.gpu_seconds) : unknown,
         row.knows_losses ? PercentText(row.lost_seconds / costs.rows.front().gpu_seconds)
                          : unknown,
         std::move(by_cause)});
  }
  return SpanText(costs.time.from, costs.time.to) + "\n\n" +
         TableText(Trimmed(std::move(table), kMostLines), columns);
}

std::string CostsJson(const Costs& costs) {
  nlohmann::json rows = nlohmann::json::array();
  for (const CostRow& row : costs.rows)
    rows.push_back({{"name", row.name},
                    {"gpu_seconds", row.gpu_seconds},
                    {"lost_seconds", row.knows_losses ? nlohmann::json(row.lost_seconds) : nullptr},
                    {"causes", row.causes}});
  return JsonLine({{"schema", kReportSchema},
                   {"from", costs.time.from},
                   {"to", costs.time.to},
                   {"rows", std::move(rows)}});
}

}  // namespace nccl_exporter::exporter
