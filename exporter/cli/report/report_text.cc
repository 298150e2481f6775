// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/report/report_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "exporter/findings/words.h"
#include "exporter/text/time_text.h"
#include "proto/identity_variables.h"

namespace nccl_exporter::exporter {
namespace {

using Cells = std::vector<std::string>;

// Rows of a table in a terminal. --json has all.
constexpr size_t kMostLines = 20;
constexpr size_t kMostSentences = 8;  // of one kind
constexpr size_t kMostValues = 5;     // of one label

// With `before`, unless it is empty.
std::string ValueOf(const SampleLabels& labels, const char* name, const char* other = "",
                    const char* before = "") {
  const std::string& own = LabelIn(labels, name);
  const std::string& found = own.empty() ? LabelIn(labels, other) : own;
  return found.empty() ? "" : before + Printable(found);
}

// "global rank 5", "rank 3 of tp", "communicator tp"
std::string RankOf(const SampleLabels& labels) {
  if (!LabelIn(labels, "global_rank").empty())
    return ValueOf(labels, "global_rank", "", "global rank ");
  if (!LabelIn(labels, "rank").empty())
    return ValueOf(labels, "rank", "", "rank ") + ValueOf(labels, "comm_name", "comm", " of ");
  return ValueOf(labels, "comm_name", "comm", "communicator ");
}

std::string IncompleteText(const std::vector<std::string>& warnings) {
  return PrintablePath(fmt::format("The answer is incomplete: {}.", fmt::join(warnings, "; ")));
}

std::string CountText(double count) {
  return count < 1e6 ? fmt::format("{:.0f}", count) : fmt::format("{:.3g}", count);
}

// A row for each time that an event lasted; of ranks, which are waited for again and again, one.
ReportTable EventsTable(const Report& report, const std::vector<ReportEvent>& events,
                        const char* title, bool are_ranks) {
  ReportTable table{.title = title,
                    .columns = {{"GPU TIME"},
                                {"FROM", true},
                                {"UNTIL", true},
                                {"NAME", true},
                                {"SEVERITY", true, 5},
                                {"ABOUT", true, 3},
                                {"RANK", true},
                                {"GPU", false, 2},
                                {"NODE", true, 4},
                                {"PID", false, 1}},
                    .rows = {}};
  for (const ReportEvent& event : events) {
    std::string about;
    for (const char* const label : {"cause", "reason", "function", "collective", "size"}) {
      const std::string& value = LabelIn(event.labels, label);
      if (!value.empty()) about += (about.empty() ? "" : " ") + Printable(value);
    }
    auto times = event.times;
    if (are_ranks) times = {{event.begin(), event.end()}};
    for (const auto& [begin, end] : times)
      table.rows.push_back(
          {are_ranks ? GpuTimeText(event.gpu_seconds) : "",
           begin == 0 ? "" : MomentText(begin, report.from),
           end == 0 ? "" : MomentText(end, report.from), Printable(event.name),
           Printable(event.severity), about, RankOf(event.labels), ValueOf(event.labels, "gpu"),
           ValueOf(event.labels, "hostname", "instance"), ValueOf(event.labels, "pid")});
  }
  return table;
}

ReportTable TrafficTable(const Report& report) {
  ReportTable table{.title = "Collectives, sends and receives",
                    .columns = {{"COMMUNICATOR", true},
                                {"FUNCTION", true},
                                {"RANKS", false, 1},
                                {"OPERATIONS"},
                                {"BYTES"},
                                {"GPU TIME"},
                                {"WAITING"},
                                {"MEAN TIME", false, 2},
                                {"TIMED", false, 3}},
                    .rows = {}};
  for (const ReportTraffic& row : report.traffic) {
    const bool is_timed = row.timed_operations > 0;
    table.rows.push_back({Printable(row.comm_name), Printable(row.collective),
                          row.ranks == 0 ? "" : std::to_string(row.ranks),
                          CountText(row.operations), BytesText(row.bytes),
                          is_timed ? GpuTimeText(row.busy_seconds) : "-",
                          is_timed && row.least_seconds > 0 ? PercentText(row.waiting_share()) : "",
                          is_timed ? DurationText(row.busy_seconds / row.timed_operations) : "",
                          PercentText(std::min(1.0, row.timed_operations / row.operations))});
  }
  return table;
}

ReportTable FactsTable(const Report& report, bool of_those_that_differ) {
  ReportTable table{
      .title = of_those_that_differ ? "Differs between ranks" : "Versions",
      .columns = {{"LABEL", true}, {"VALUE", true}, {"PROCESSES"}, {"RANKS", true, 1}},
      .rows = {}};
  std::map<std::string_view, std::vector<const ReportFact*>> by_name;
  for (const ReportFact& fact : report.facts) by_name[fact.name].push_back(&fact);
  for (const auto& [name, values] : by_name) {
    const bool differs = values.size() > 1;
    if (differs != of_those_that_differ || !(differs || name.ends_with("_version"))) continue;
    // The most frequent one, and the rarest.
    const size_t left_out = values.size() > kMostValues ? values.size() - kMostValues : 0;
    for (size_t i = 0; i < values.size(); i += i == 0 ? left_out + 1 : 1) {
      const ReportFact& fact = *values[i];
      const bool is_unset = fact.value.empty() && IsNcclVariable(name);
      table.rows.push_back({Printable(fact.name), is_unset ? "not set" : PrintablePath(fact.value),
                            std::to_string(fact.processes),
                            Printable(fmt::format("{}", fmt::join(fact.on, ", ")))});
    }
    if (left_out > 0)
      table.rows.push_back({Printable(name), fmt::format("and {} more values", left_out), "", ""});
  }
  return table;
}

ReportTable LossesTable(const Report& report) {
  ReportTable table{.title = "Operations that were not followed or not timed",
                    .columns = {{"CAUSE", true}, {"NUMBER"}},
                    .rows = {}};
  for (const ReportLoss& loss : report.losses)
    table.rows.push_back({Printable(loss.cause), CountText(loss.operations)});
  return table;
}

// Begins a sentence about an event; empty for those that the table alone has.
std::string BeginOf(const ReportEvent& event) {
  if (event.name.starts_with("NCCLHang") || event.name.starts_with("hang_")) return "a hang, by ";
  return event.name == "NCCLStragglerSuspect" ? "a late rank, and at the same time " : "";
}

// One for each hang and suspect and each time of it, findings by their own sentence. Two severities
// have one sentence, and so have culprits of one finding.
void AddSentences(const Report& report, std::vector<std::string>& sentences) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<std::pair<double, double>>> times;
  for (const ReportEvent& event : report.events) {
    if (BeginOf(event).empty() || event.times.empty()) continue;
    std::vector<std::string> about{Printable(LabelIn(event.labels, "cause")),
                                   PlaceOf(event.labels)};
    std::erase(about, "");
    const std::string sentence = event.text.empty()
                                     ? fmt::format("{}{}.", BeginOf(event), fmt::join(about, ", "))
                                     : PrintablePath(event.text);
    if (!times.contains(sentence)) order.push_back(sentence);
    std::ranges::copy(event.times, std::back_inserter(times[sentence]));
  }
  size_t said = 0, more = 0;
  for (const std::string& sentence : order) {
    std::vector<std::pair<double, double>>& all = times[sentence];
    std::ranges::sort(all);
    for (size_t i = 0; i < all.size();) {
      auto [begin, end] = all[i];
      for (++i; i < all.size() && all[i].first <= end; ++i) end = std::max(end, all[i].second);
      if (said == kMostSentences) {
        ++more;
        continue;
      }
      ++said;
      sentences.push_back(fmt::format("{} to {}: {}", MomentText(begin, report.from),
                                      MomentText(end, report.from), sentence));
    }
  }
  if (more > 0)
    sentences.push_back(fmt::format("The table of alerts and findings has {} more.", more));
}

std::string WhyUntimed(const Report& report) {
  const bool is_found = std::ranges::any_of(report.events, [](const ReportEvent& event) {
    return event.name == "NCCLJobNotJudged" || event.name == "not_judged";
  });
  return is_found ? "its ranks have no GPU times, and the runbook NCCLJobNotJudged says why"
                  : "its ranks have no GPU times, or the rules are not loaded";
}

std::string Lines(const std::vector<std::string>& lines) {
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

}  // namespace

std::string MomentText(double time, double day) {
  constexpr size_t kDay = sizeof("2023-11-14") - 1, kSeconds = sizeof("2023-11-14T22:15:03") - 1;
  constexpr double kLatest = 9e9;  // beyond 2200: a server or a file may say anything
  const auto text = [](double at) {
    return TimeText(at > 1 && at < kLatest ? static_cast<int64_t>(at * 1e9) : 0);
  };
  std::string moment = text(time).substr(0, kSeconds);
  if (moment.size() < kSeconds) return moment;
  moment[kDay] = ' ';
  const bool is_same_day = text(day).substr(0, kDay) == moment.substr(0, kDay);
  return is_same_day ? moment.substr(kDay + 1) : moment;
}

std::string PercentText(double share) {
  return std::isfinite(share) ? fmt::format("{:.1f} %", share * 100) : "";
}

std::string GpuTimeText(double gpu_seconds) {
  constexpr double kMinute = 60, kHour = 3600;
  if (gpu_seconds >= 1000 * kHour) return fmt::format("{:.0f} GPU h", gpu_seconds / kHour);
  if (gpu_seconds >= kHour) return fmt::format("{:.4g} GPU h", gpu_seconds / kHour);
  if (gpu_seconds >= 2 * kMinute) return fmt::format("{:.3g} GPU min", gpu_seconds / kMinute);
  return fmt::format("{:.3g} GPU s", gpu_seconds);
}

std::string PlaceOf(const SampleLabels& labels) {
  const std::string rank = RankOf(labels), node = ValueOf(labels, "hostname", "instance");
  if (rank.empty()) return node.empty() ? "" : "node " + node;
  std::vector<std::string> where{ValueOf(labels, "gpu", "", "GPU "), node,
                                 ValueOf(labels, "pid", "", "pid ")};
  std::erase(where, "");
  return where.empty() ? rank : fmt::format("{} ({})", rank, fmt::join(where, ", "));
}

std::string TitleOf(const Report& report) {
  return fmt::format("{}: {} {}{}", Capital(report.job.Text()), report.job.processes,
                     report.job.processes == 1 ? "process" : "processes",
                     report.nodes == 0 ? "" : " on " + CountText(report.nodes, "node"));
}

std::string SpanText(double from, double to) {
  return fmt::format("{} to {} UTC ({})", MomentText(from), MomentText(to, from),
                     DurationText(std::max(0.0, to - from)));
}

std::string TimeOf(const Report& report) {
  return fmt::format("{}, from {}", SpanText(report.from, report.to), Printable(report.source));
}

std::vector<std::string> SummaryOf(const Report& report) {
  std::vector<std::string> sentences;
  if (!report.warnings.empty()) sentences.push_back(IncompleteText(report.warnings));
  const std::string had = GpuTimeText(report.gpu_seconds);
  if (report.knows_waiting || report.waiting_gpu_seconds > 0)
    sentences.push_back(fmt::format("{} of {} were lost by waiting: {}.",
                                    GpuTimeText(report.waiting_gpu_seconds), had,
                                    PercentText(report.waiting_share())));
  if (!report.knows_waiting)
    sentences.push_back(
        report.waiting_gpu_seconds > 0
            ? fmt::format("Waits that are no hang are not known: {}.", WhyUntimed(report))
            : fmt::format("It had {}. Waits are not known: {}.", had, WhyUntimed(report)));
  if (!report.waited_for.empty()) {
    const ReportEvent& first = report.waited_for.front();
    sentences.push_back(fmt::format("The others waited most for {}: {}.", PlaceOf(first.labels),
                                    GpuTimeText(first.gpu_seconds)));
  }
  AddSentences(report, sentences);
  if (std::ranges::all_of(report.events, [](const ReportEvent& event) {
        return event.severity == "info" && !BeginOf(event).starts_with("a hang");
      }))
    sentences.emplace_back(report.events.empty() ? "No alert fired, and no finding has lasted."
                                                 : "What is found is information alone.");
  return sentences;
}

ReportTable Trimmed(ReportTable table, size_t most_rows) {
  for (size_t i = table.columns.size(); i-- > 0;) {
    if (!std::ranges::all_of(table.rows, [&](const Cells& row) { return row[i].empty(); }))
      continue;
    const auto at = static_cast<std::ptrdiff_t>(i);
    table.columns.erase(table.columns.begin() + at);
    for (Cells& row : table.rows) row.erase(row.begin() + at);
  }
  if (table.rows.size() > most_rows) {
    table.left_out = table.rows.size() - most_rows;
    table.rows.resize(most_rows);
  }
  return table;
}

std::string TableText(const ReportTable& table, size_t columns) {
  TextTable text(table.columns);
  for (const Cells& row : table.rows) text.Add(row);
  return Lines(text.Lines(columns)) +
         (table.left_out > 0 ? fmt::format("{} more: --json has all.\n", table.left_out) : "");
}

std::vector<ReportTable> TablesOf(const Report& report, size_t most_rows) {
  std::vector<ReportTable> tables;
  for (ReportTable& table : std::array{
           EventsTable(report, report.waited_for, "Ranks that the others waited for", true),
           EventsTable(report, report.events, "Alerts and findings", false), TrafficTable(report),
           FactsTable(report, true), LossesTable(report), FactsTable(report, false)}) {
    if (!table.rows.empty()) tables.push_back(Trimmed(std::move(table), most_rows));
  }
  return tables;
}

std::string ReportText(const Report& report, size_t columns) {
  std::string text =
      Lines(Wrapped(TitleOf(report), columns)) + Lines(Wrapped(TimeOf(report), columns)) + '\n';
  for (const std::string& sentence : SummaryOf(report)) text += Lines(Wrapped(sentence, columns));
  for (const ReportTable& table : TablesOf(report, kMostLines))
    text += '\n' + table.title + ":\n" + TableText(table, columns);
  return text;
}

std::string JobsText(const std::vector<Job>& jobs, const std::vector<std::string>& warnings,
                     size_t columns) {
  ReportTable table{.title = "",
                    .columns = {{"JOB", true},
                                {"NAME", true, 1},
                                {"NAMESPACE", true},
                                {"CLUSTER", true, 2},
                                {"USER", true},
                                {"PROCESSES"},
                                {"GPUS WAIT"},
                                {"ALERT", true}},
                    .rows = {}};
  for (const Job& job : jobs) {
    const auto label = [&](const char* name) { return Printable(job.Label(name)); };
    table.rows.push_back({job.Label("nccl_job").empty() ? "-" : label("nccl_job"), job.NamesText(),
                          label("namespace"), label("cluster"), label("uid"),
                          std::to_string(job.processes),
                          job.waiting_gpus > 0 ? fmt::format("{:.1f}", job.waiting_gpus) : "",
                          Printable(job.trouble)});
  }
  return (warnings.empty() ? "" : Lines(Wrapped(IncompleteText(warnings), columns))) +
         TableText(Trimmed(std::move(table), jobs.size()), columns) +
         Lines(Wrapped("Choose one with --job, --namespace, --cluster and --uid. An empty value is "
                       "a job without it.",
                       columns));
}

}  // namespace nccl_exporter::exporter
