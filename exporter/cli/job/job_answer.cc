// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/job/job_answer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

#include "exporter/cli/job/job_report.h"
#include "exporter/findings/words.h"
#include "exporter/text/text_table.h"
#include "exporter/text/time_text.h"

namespace nccl_exporter::exporter {
namespace {

using Json = nlohmann::ordered_json;
// Why the answers that a text comes from may be incomplete: QueryAnswer.
using Warnings = std::vector<std::string>;

// Lines of alerts, and of each series. --json has all.
constexpr size_t kMostLines = 20;

// A column of a label, or of the second one where a series lacks the first.
struct LabelColumn {
  TextColumn column;
  const char* label;
  const char* instead;
};
constexpr std::array<LabelColumn, 10> kLabelColumns{{
    {{"GLOBAL RANK"}, "global_rank", ""},
    {{"COMMUNICATOR", true}, "comm_name", "comm"},
    {{"RANK", false, 3}, "rank", ""},
    {{"FUNCTION", true, 6}, "function", "collective"},
    {{"SIZE", false, 5}, "size", ""},
    {{"REASON", true, 7}, "reason", ""},
    {{"GPU", false, 4}, "gpu", ""},
    {{"NODE", true}, "hostname", "instance"},
    {{"POD", true, 1}, "pod", ""},
    {{"PID", false, 2}, "pid", ""},
}};

int64_t Nanoseconds(double seconds) {
  constexpr double kLatest = 9e9;  // beyond 2200: a server may say anything
  return seconds > 1 && seconds < kLatest ? static_cast<int64_t>(seconds * 1e9) : 0;
}

// "answer is incomplete: store-1: timeout; store-2: timeout".
std::string WarningText(const Warnings& warnings) {
  return fmt::format("answer is incomplete: {}", fmt::join(warnings, "; "));
}

class Screen {
 public:
  Screen(const Warnings& warnings, size_t columns) : columns_(columns) {
    if (!warnings.empty()) AddLine(WarningText(warnings));
  }

  void AddLine(const std::string& text) { Add(Wrapped(text, columns_)); }
  void AddTable(const TextTable& table) { Add(table.Lines(columns_)); }

  // A row for each of the first series: its cells, and those of its labels. A label that none of
  // them has is no column.
  template <typename Cells>
  void AddSamples(std::vector<TextColumn> columns, const Samples& samples, Cells cells) {
    std::vector<const Sample*> shown;
    std::map<std::string, size_t> counts;
    for (const Sample& sample : samples) {
      if (counts[sample.Label("__name__")]++ < kMostLines) shown.push_back(&sample);
    }
    std::vector<std::vector<std::string>> rows;
    for (const Sample* const sample : shown) rows.push_back(cells(*sample));
    for (const auto& [column, label, instead] : kLabelColumns) {
      std::vector<std::string> texts;
      for (const Sample* const sample : shown)
        texts.push_back(Printable(sample->Label(sample->Label(label).empty() ? instead : label)));
      if (std::ranges::all_of(texts, &std::string::empty)) continue;
      columns.push_back(column);
      for (size_t i = 0; i < rows.size(); ++i) rows[i].push_back(std::move(texts[i]));
    }
    TextTable table(std::move(columns));
    for (std::vector<std::string>& row : rows) table.Add(std::move(row));
    AddTable(table);
    for (const auto& [name, count] : counts) {
      if (count > kMostLines)
        AddLine(fmt::format("{} more{}: --json has all.", count - kMostLines,
                            name.empty() ? "" : " of " + Printable(name)));
    }
  }

  std::string Text() { return std::move(text_); }

 private:
  void Add(const std::vector<std::string>& lines) {
    for (const std::string& line : lines) text_ += line + '\n';
  }

  const size_t columns_;
  std::string text_;
};

// Null where it is not known.
Json TimeOf(double seconds) { return Nanoseconds(seconds) > 0 ? Json(seconds) : Json(); }

template <typename Texts>
Json TextsOf(const Texts& texts) {
  Json all = Json::array();
  for (const std::string& text : texts) all.push_back(PrintablePath(text));
  return all;
}

Json JsonOf(const SampleLabels& labels) {
  Json json = Json::object();
  for (const auto& [name, value] : labels) json[PrintablePath(name)] = PrintablePath(value);
  return json;
}

Json JsonOf(const Job& job) {
  Json json = JsonOf(job.labels);
  json["slurm_job_names"] = TextsOf(job.names);
  json["processes"] = job.processes;
  return json;
}

std::string JobScreen(const JobReport& report, const Warnings& warnings, size_t columns) {
  constexpr size_t kMinutes = sizeof("2023-11-14T22:13") - 1;
  const auto age = [&](double then) {
    return AgeText(Nanoseconds(then), Nanoseconds(report.time));
  };
  Screen screen(warnings, columns);
  screen.AddLine(fmt::format("{}: {} {}, {}Z", Capital(report.job.Text()), report.job.processes,
                             report.job.processes == 1 ? "process" : "processes",
                             TimeText(Nanoseconds(report.time)).substr(0, kMinutes)));
  screen.AddLine("");
  if (report.alerts.empty()) screen.AddLine("No alert fires.");
  if (!report.alerts.empty()) {
    screen.AddSamples({{"ALERT", true}, {"SEVERITY", true}, {"FOR"}}, report.alerts,
                      [&](const Sample& alert) -> std::vector<std::string> {
                        return {Printable(alert.Label("alertname")),
                                Printable(alert.Label("severity")), age(alert.value)};
                      });
  }
  screen.AddLine("");
  screen.AddLine(report.rules_evaluated > 0
                     ? fmt::format("Recorded by the rules, {} ago:", age(report.rules_evaluated))
                     : "The rules have no series of this job, so no alert can fire: they are not "
                       "loaded (deploy/prometheus), their --job-labels are others, or the job is "
                       "new.");
  if (!report.recorded.empty()) {
    screen.AddSamples(
        {{"SERIES", true}, {"VALUE"}}, report.recorded,
        [](const Sample& sample) -> std::vector<std::string> {
          return {Printable(sample.Label("__name__")), fmt::format("{:.4g}", sample.value)};
        });
  }
  return screen.Text();
}

std::string JobsScreen(const std::vector<Job>& jobs, const Warnings& warnings, size_t columns) {
  TextTable table({{"JOB", true},
                   {"NAME", true, 1},
                   {"NAMESPACE", true},
                   {"CLUSTER", true, 2},
                   {"USER", true},
                   {"PROCESSES"}});
  for (const Job& job : jobs) {
    const auto label = [&](const char* name) { return Printable(job.labels.at(name)); };
    table.Add({job.labels.at("nccl_job").empty() ? "-" : label("nccl_job"), job.NamesText(),
               label("namespace"), label("cluster"), label("uid"), std::to_string(job.processes)});
  }
  Screen screen(warnings, columns);
  screen.AddTable(table);
  screen.AddLine(
      "Choose one with --job, --namespace, --cluster and --uid. An empty value is a job without "
      "it.");
  return screen.Text();
}

std::string JobJson(const JobReport& report, const Warnings& warnings) {
  Json alerts = Json::array(), series = Json::array();
  for (const Sample& alert : report.alerts)
    alerts.push_back({{"since", TimeOf(alert.value)}, {"labels", JsonOf(alert.labels)}});
  for (const Sample& sample : report.recorded) {
    SampleLabels labels = sample.labels;
    labels.erase("__name__");
    series.push_back({{"name", PrintablePath(sample.Label("__name__"))},
                      {"value", sample.value},
                      {"labels", JsonOf(labels)}});
  }
  return Json{{"warnings", TextsOf(warnings)}, {"job", JsonOf(report.job)},
              {"taken", TimeOf(report.time)},  {"rules_evaluated", TimeOf(report.rules_evaluated)},
              {"alerts", std::move(alerts)},   {"series", std::move(series)}}
             .dump() +
         '\n';
}

std::string JobsJson(const std::vector<Job>& jobs, const Warnings& warnings) {
  Json list = Json::array();
  for (const Job& job : jobs) list.push_back(JsonOf(job));
  return Json{{"warnings", TextsOf(warnings)}, {"jobs", std::move(list)}}.dump() + '\n';
}

// Throws std::runtime_error where an answer does not come.
std::string Answer(const JobRequest& request, const AskSamples& ask, const Warnings& warnings,
                   size_t columns) {
  double time = 0;
  const std::vector<Job> all = JobsOf(ask, time);
  std::vector<Job> jobs = all;
  std::erase_if(jobs, [&](const Job& job) {
    return !std::ranges::all_of(request.wanted, [&](const auto& label) {
      return job.labels.at(label.first) == label.second;
    });
  });
  if (jobs.empty()) throw std::runtime_error(NoSuchJob(request.wanted, all));
  if (jobs.size() > 1)
    return request.is_json ? JobsJson(jobs, warnings) : JobsScreen(jobs, warnings, columns);
  const JobReport report = ReportOf(ask, jobs.front(), time);
  return request.is_json ? JobJson(report, warnings) : JobScreen(report, warnings, columns);
}

}  // namespace

std::string AnswerAbout(const JobRequest& request, const AskPrometheus& ask, size_t columns) {
  Warnings warnings;
  const AskSamples ask_and_note = [&](const std::string& query) {
    QueryAnswer answer = ask(query);
    for (const std::string& warning : answer.warnings) {
      if (warnings.size() < kMostWarnings && std::ranges::count(warnings, warning) == 0)
        warnings.push_back(warning);
    }
    return std::move(answer.samples);
  };
  try {
    return Answer(request, ask_and_note, warnings, columns);
  } catch (const std::runtime_error& wrong) {
    if (warnings.empty()) throw;
    // A job that is missing may be in the part that did not come.
    throw std::runtime_error(wrong.what() + ("; the " + WarningText(warnings)));
  }
}

}  // namespace nccl_exporter::exporter
