// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/report/report_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "exporter/findings/words.h"
#include "exporter/text/time_text.h"

namespace nccl_exporter::exporter {
namespace {

using Cells = std::vector<std::string>;

// Rows of a table in a terminal. --json has all.
constexpr size_t kMostLines = 20;
constexpr size_t kMostSentences = 8;  // of one kind

// A column of a label, or of the second one where an event lacks the first.
struct LabelColumn {
  TextColumn column;
  const char* label;
  const char* instead;
};
constexpr std::array<LabelColumn, 10> kLabelColumns{{
    {{"GLOBAL RANK"}, "global_rank", ""},
    {{"COMMUNICATOR", true, 7}, "comm_name", "comm"},
    {{"RANK", false, 3}, "rank", ""},
    {{"FUNCTION", true, 6}, "function", "collective"},
    {{"SIZE", false, 5}, "size", ""},
    {{"CAUSE", true, 9}, "cause", "reason"},
    {{"GPU", false, 4}, "gpu", ""},
    {{"NODE", true, 10}, "hostname", "instance"},
    {{"POD", true, 1}, "pod", ""},
    {{"PID", false, 2}, "pid", ""},
}};

const std::string& LabelOf(const SampleLabels& labels, const char* name) {
  static const std::string kNone;
  const auto found = labels.find(name);
  return found == labels.end() ? kNone : found->second;
}

std::string PercentText(double share) { return fmt::format("{:.1f} %", share * 100); }

std::string CountText(double count) {
  return count < 1e6 ? fmt::format("{:.0f}", count) : fmt::format("{:.3g}", count);
}

// Columns without a cell go, and rows beyond the most.
void AddTable(ReportTable table, size_t most_rows, std::vector<ReportTable>& tables) {
  if (table.rows.empty()) return;
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
  tables.push_back(std::move(table));
}

// A row for each time that an event lasted; of ranks, which are waited for again and again, one.
ReportTable EventsTable(const Report& report, const std::vector<ReportEvent>& events,
                        const char* title, bool are_ranks) {
  ReportTable table{.title = title,
                    .columns = {{"GPU TIME"},
                                {"FROM", true},
                                {"UNTIL", true},
                                {"NAME", true},
                                {"SEVERITY", true, 8}},
                    .rows = {}};
  for (const LabelColumn& label : kLabelColumns) table.columns.push_back(label.column);
  for (const ReportEvent& event : events) {
    auto times = event.times;
    if (are_ranks) times = {{event.begin(), event.end()}};
    for (const auto& [begin, end] : times) {
      Cells row{are_ranks ? GpuTimeText(event.gpu_seconds) : "",
                begin == 0 ? "" : MomentText(begin, report.from),
                end == 0 ? "" : MomentText(end, report.from), Printable(event.name),
                Printable(event.severity)};
      for (const auto& [column, label, instead] : kLabelColumns)
        row.push_back(Printable(
            LabelOf(event.labels, LabelOf(event.labels, label).empty() ? instead : label)));
      table.rows.push_back(std::move(row));
    }
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
  for (const ReportTraffic& row : TrafficByName(report)) {
    const bool is_timed = row.timed_operations > 0;
    table.rows.push_back({Printable(row.comm_name), Printable(row.collective),
                          row.ranks == 0 ? "" : std::to_string(row.ranks),
                          CountText(row.operations), BytesText(static_cast<uint64_t>(row.bytes)),
                          is_timed ? GpuTimeText(row.busy_seconds) : "-",
                          is_timed && row.least_seconds > 0 ? PercentText(WaitingShareOf(row)) : "",
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
  for (const ReportFact& fact : report.facts) {
    const bool is_version = fact.name.ends_with("_version");
    if (of_those_that_differ ? !report.Differs(fact) : !is_version || report.Differs(fact))
      continue;
    table.rows.push_back({Printable(fact.name), PrintablePath(fact.value),
                          std::to_string(fact.processes),
                          Printable(fmt::format("{}", fmt::join(fact.on, ", ")))});
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

bool NamesHang(const ReportEvent& event) {
  return event.name.starts_with("NCCLHang") || event.name.starts_with("hang_");
}
bool NamesSuspect(const ReportEvent& event) { return event.name == "NCCLStragglerSuspect"; }

// One for each event that `is_one`, findings by their own sentence.
void AddSentences(const Report& report, bool (*is_one)(const ReportEvent&), const char* what,
                  std::vector<std::string>& sentences) {
  std::set<std::string> said;  // two severities have one sentence, and culprits of one finding
  for (const ReportEvent& event : report.events) {
    if (!is_one(event) || event.times.empty()) continue;
    const std::string of = PlaceOf(event.labels), cause = LabelOf(event.labels, "cause");
    const std::string about =
        event.text.empty() ? fmt::format("{}{}{}.", what, cause.empty() ? "" : Printable(cause),
                                         of.empty() ? "" : (cause.empty() ? "" : ", ") + of)
                           : PrintablePath(event.text);
    if (said.size() == kMostSentences || !said.insert(about).second) continue;
    sentences.push_back(fmt::format("{} to {}: {}", MomentText(event.begin(), report.from),
                                    MomentText(event.end(), report.from), about));
  }
}

class Screen {
 public:
  Screen(const std::vector<std::string>& warnings, size_t columns) : columns_(columns) {
    if (!warnings.empty())
      AddLine(
          PrintablePath(fmt::format("The answer is incomplete: {}", fmt::join(warnings, "; "))));
  }

  void AddLine(const std::string& text) { Add(Wrapped(text, columns_)); }
  void AddTable(const ReportTable& table) {
    TextTable text(table.columns);
    for (const Cells& row : table.rows) text.Add(row);
    Add(text.Lines(columns_));
    if (table.left_out > 0) AddLine(fmt::format("{} more: --json has all.", table.left_out));
  }

  std::string Text() { return std::move(text_); }

 private:
  void Add(const std::vector<std::string>& lines) {
    for (const std::string& line : lines) text_ += line + '\n';
  }

  const size_t columns_;
  std::string text_;
};

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

std::string GpuTimeText(double gpu_seconds) {
  constexpr double kMinute = 60, kHour = 3600;
  if (gpu_seconds >= kHour) return fmt::format("{:.4g} GPU h", gpu_seconds / kHour);
  if (gpu_seconds >= 2 * kMinute) return fmt::format("{:.3g} GPU min", gpu_seconds / kMinute);
  return fmt::format("{:.3g} GPU s", gpu_seconds);
}

std::vector<ReportTraffic> TrafficByName(const Report& report) {
  std::vector<ReportTraffic> rows;
  std::map<std::pair<std::string, std::string>, std::pair<size_t, size_t>> places;
  for (const ReportTraffic& one : report.traffic) {
    const std::string& name = one.comm_name.empty() ? one.comm : one.comm_name;
    auto& [place, communicators] =
        places.try_emplace({name, one.collective}, rows.size(), 0).first->second;
    if (communicators++ == 0) {
      rows.push_back(one);
      rows.back().comm_name = name;
      continue;
    }
    ReportTraffic& sum = rows[place];
    sum.comm_name = fmt::format("{} ({})", name, communicators);
    // The mean: ranks times it is the sum.
    sum.least_seconds = (static_cast<double>(sum.ranks) * sum.least_seconds +
                         static_cast<double>(one.ranks) * one.least_seconds) /
                        static_cast<double>(std::max<uint64_t>(sum.ranks + one.ranks, 1));
    sum.ranks += one.ranks;
    sum.operations += one.operations;
    sum.timed_operations += one.timed_operations;
    sum.bytes += one.bytes;
    sum.busy_seconds += one.busy_seconds;
  }
  std::ranges::stable_sort(rows, std::ranges::greater(), &ReportTraffic::busy_seconds);
  return rows;
}

double WaitingShareOf(const ReportTraffic& traffic) {
  const double least = static_cast<double>(traffic.ranks) * traffic.least_seconds;
  return traffic.busy_seconds > 0 ? std::max(0.0, 1 - least / traffic.busy_seconds) : 0;
}

std::string PlaceOf(const SampleLabels& labels) {
  const auto value = [&](const char* name) { return Printable(LabelOf(labels, name)); };
  const std::string node = value(LabelOf(labels, "hostname").empty() ? "instance" : "hostname");
  const std::string communicator =
      value(LabelOf(labels, "comm_name").empty() ? "comm" : "comm_name");
  std::string text, where;
  if (!value("global_rank").empty()) {
    text = "global rank " + value("global_rank");
  } else if (!value("rank").empty()) {
    text = "rank " + value("rank") + (communicator.empty() ? "" : " of " + communicator);
  } else if (!communicator.empty()) {
    text = "communicator " + communicator;
  }
  const auto add = [&](const std::string& before, const std::string& part) {
    if (!part.empty()) where += (where.empty() ? "" : ", ") + before + part;
  };
  add("GPU ", value("gpu"));
  add("", node);
  add("pid ", value("pid"));
  if (text.empty()) return node.empty() ? "" : "node " + node;
  return where.empty() ? text : text + " (" + where + ")";
}

std::string TitleOf(const Report& report) {
  return fmt::format("{}: {} {}{}", Capital(report.job.Text()), report.job.processes,
                     report.job.processes == 1 ? "process" : "processes",
                     report.nodes == 0   ? ""
                     : report.nodes == 1 ? " on 1 node"
                                         : fmt::format(" on {} nodes", report.nodes));
}

std::string TimeOf(const Report& report) {
  return fmt::format(
      "{} to {} UTC ({}), from {}", MomentText(report.from), MomentText(report.to, report.from),
      DurationText(std::max(0.0, report.to - report.from)), Printable(report.source));
}

std::vector<std::string> SummaryOf(const Report& report) {
  std::vector<std::string> sentences;
  if (!report.warnings.empty())
    sentences.push_back(PrintablePath(
        fmt::format("The answer is incomplete: {}.", fmt::join(report.warnings, "; "))));
  const std::string had = GpuTimeText(report.gpu_seconds);
  if (report.knows_waiting || report.waiting_gpu_seconds > 0)
    sentences.push_back(fmt::format("{} of {} were lost by waiting: {}.",
                                    GpuTimeText(report.waiting_gpu_seconds), had,
                                    PercentText(report.waiting_share())));
  if (!report.knows_waiting)
    sentences.push_back(fmt::format(
        "It had {}. Waits are not known: its ranks have no GPU times, or the rules are not loaded.",
        had));
  if (!report.waited_for.empty()) {
    const ReportEvent& first = report.waited_for.front();
    sentences.push_back(fmt::format("The others waited most for {}: {}.", PlaceOf(first.labels),
                                    GpuTimeText(first.gpu_seconds)));
  }
  AddSentences(report, NamesHang, "a hang, by ", sentences);
  AddSentences(report, NamesSuspect, "a late rank, and at the same time ", sentences);
  const auto is_worth = [](const ReportEvent& event) {
    return event.severity != "info" || NamesHang(event);
  };
  if (std::ranges::none_of(report.events, is_worth))
    sentences.emplace_back("No alert fired and nothing was found.");
  return sentences;
}

std::vector<ReportTable> TablesOf(const Report& report, size_t most_rows) {
  std::vector<ReportTable> tables;
  AddTable(EventsTable(report, report.waited_for, "Ranks that the others waited for", true),
           most_rows, tables);
  AddTable(EventsTable(report, report.events, "Alerts and findings", false), most_rows, tables);
  AddTable(TrafficTable(report), most_rows, tables);
  AddTable(FactsTable(report, true), most_rows, tables);
  AddTable(LossesTable(report), most_rows, tables);
  AddTable(FactsTable(report, false), most_rows, tables);
  return tables;
}

std::string ReportText(const Report& report, size_t columns) {
  Screen screen({}, columns);
  screen.AddLine(TitleOf(report));
  screen.AddLine(TimeOf(report));
  screen.AddLine("");
  for (const std::string& sentence : SummaryOf(report)) screen.AddLine(sentence);
  for (const ReportTable& table : TablesOf(report, kMostLines)) {
    screen.AddLine("");
    screen.AddLine(table.title + ":");
    screen.AddTable(table);
  }
  return screen.Text();
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
  std::vector<ReportTable> tables;
  AddTable(std::move(table), jobs.size(), tables);
  Screen screen(warnings, columns);
  for (const ReportTable& one : tables) screen.AddTable(one);
  screen.AddLine(
      "Choose one with --job, --namespace, --cluster and --uid. An empty value is a job without "
      "it.");
  return screen.Text();
}

}  // namespace nccl_exporter::exporter
