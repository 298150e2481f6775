// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/report/report_of_prometheus.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "proto/identity_variables.h"

namespace nccl_exporter::exporter {
namespace {

// Points of a chart, and of a search for the time in which the job ran.
constexpr double kPoints = 240, kSearchPoints = 3000;
// Parts of the time, whose differences are the noise of a measure.
constexpr double kParts = 16;
// Seconds between two values of what the rules record for reports.
constexpr double kRecorded = 60;
// Prometheus shows a value for this long. A gap of an alert that is longer ends it.
constexpr double kLookback = 300;
// GPUs that wait for a rank. Less is jitter.
constexpr const char* kLeastWaitedFor = "0.05";

// Labels of nccl_rank_info that ranks, nodes and communicators have of their own.
constexpr const char* kSoonBefore = "1h";  // counters at the begin of the time
constexpr std::array kOfRank{"comm",       "comm_name",  "rank",          "timing_source",
                             "gpu_uuid",   "pci_bus_id", "timing_reason", "adapter",
                             "local_rank", "job",        "part",          "slurm_step_id",
                             "group_rank", "gpu"};
constexpr std::array kOfProcess{"instance", "hostname",  "pod",        "pod_uid",
                                "pid",      "container", "global_rank"};
constexpr const char* kByCommunicator = "by (comm, comm_name, collective)";
constexpr const char* kWaitedFor = "global_rank, gpu, hostname, instance, pod, container, pid";

class Asked {
 public:
  Asked(const AskSamples& ask, const Job& job, const TimeSpan& time)
      : ask_(ask), job_(job), matchers_(job.Matchers()), time_(time), until_(time.to) {}

  Report Fill() {
    Report report{.source = "Prometheus", .job = job_, .from = time_.from, .to = time_.to};
    FindTime(report);
    AddWaiting(report);
    AddEvents(report);
    AddTraffic(report);
    AddMeasures(report);
    AddFacts(report);
    AddLosses(report);
    return report;
  }

 private:
  Samples Ask(const std::string& query) const { return ask_(query, time_.to); }
  // Points of an expression until then, so far apart.
  Samples Steps(const std::string& expression, double step, double until) const {
    return ask_(fmt::format("({})[{}ms:{}ms]", expression, Milliseconds(until - time_.from),
                            Milliseconds(step)),
                until);
  }
  Samples Steps(const std::string& expression, double step) const {
    return Steps(expression, step, time_.to);
  }
  // Mean of what the rules record, in the step before each point; 0 where it is absent.
  std::string MeanOf(const std::string& recorded) const {
    if (step_ <= kRecorded) return recorded;
    // Without its first moment: some servers would count a moment between two steps in both.
    return fmt::format("sum_over_time(({0})[{1}ms:{2}s]) * {2} / {3}", recorded,
                       Milliseconds(step_) - 1, kRecorded, step_);
  }
  static int64_t Milliseconds(double seconds) {
    return std::max<int64_t>(1, static_cast<int64_t>(seconds * 1e3));
  }
  std::string Range() const { return RangeText(time_.seconds()); }
  std::string LongRange() const { return RangeText(until_ - time_.from); }
  // Counts of the series of these names that came in this time, in sums by labels.
  Samples Counted(const std::string& names, const std::string& labels) const;

  void FindTime(Report& report);
  void AddWaiting(Report& report) const;
  void AddEvents(Report& report) const;
  void AddTraffic(Report& report) const;
  void AddMeasures(Report& report) const;
  void AddFacts(Report& report) const;
  void AddLosses(Report& report) const;

  const AskSamples& ask_;
  const Job& job_;
  const std::string matchers_;
  TimeSpan time_;  // in which the job ran, at most a step more
  double until_;   // in which its last counts and its last alerts come
  double step_ = 1;
};

std::string NameOfCommunicator(const Sample& sample) {
  return sample.Label(sample.Label("comm_name").empty() ? "comm" : "comm_name");
}

std::vector<Point> SumOf(const Samples& samples) {
  std::map<double, double> sums;
  for (const Sample& sample : samples) {
    for (const Point& point : sample.points) sums[point.time] += point.value;
  }
  std::vector<Point> points;
  for (const auto& [time, value] : sums) points.push_back({time, value});
  return points;
}

double TotalOf(const std::vector<Point>& points, double step) {
  double total = 0;
  for (const Point& point : points) total += point.value * step;
  return total;
}

// Points that are `gap` and less apart are of one time.
std::vector<std::pair<double, double>> TimesOf(const std::vector<Point>& points, double gap) {
  std::vector<std::pair<double, double>> times;
  for (const Point& point : points) {
    if (times.empty() || point.time - times.back().second > gap)
      times.emplace_back(point.time, point.time);
    times.back().second = point.time;
  }
  return times;
}

// Processes that live are those that are not halted, or are stopped only. Ended ones are served for
// some minutes more, so that a job of seconds is found in a week.
void Asked::FindTime(Report& report) {
  const auto narrow = [&](const std::string& expression) {
    const double step = time_.seconds() / kSearchPoints;
    const std::vector<Point> found = SumOf(Steps(expression, step));
    // Only a job that began after the last step has no point: an ended one has some for minutes.
    if (found.empty()) time_.from = std::max(time_.from, time_.to - step);
    if (found.empty()) return;
    time_ = {.from = std::max(time_.from, found.front().time - step),
             .to = std::min(time_.to, found.back().time + step)};
  };
  const std::string alive = fmt::format(
      "count(nccl_process_halted{{{0}}} == 0 or nccl_process_stopped{{{0}}} == 1)", matchers_);
  narrow(fmt::format("count(nccl_process_halted{{{}}})", matchers_));
  until_ = time_.to;
  narrow(alive);
  step_ = time_.seconds() / kPoints;
  report.gpus = SumOf(Steps(alive, step_));
  // A process may have several GPUs.
  const std::string ranks =
      fmt::format("last_over_time(nccl_rank_info{{{}}}{})", matchers_, Range());
  for (const Sample& ratio :
       Ask(fmt::format("count(group by ({1}, gpu) ({0})) / count(group by ({1}) ({0}))", ranks,
                       fmt::join(kOfProcess, ", ")))) {
    for (Point& point : report.gpus) point.value *= ratio.value;
  }
  report.gpu_seconds = TotalOf(report.gpus, step_);
  report.from = report.gpus.empty() ? time_.from : report.gpus.front().time;
  report.to = report.gpus.empty() ? time_.to : report.gpus.back().time;
}

void Asked::AddWaiting(Report& report) const {
  const std::string waiting = fmt::format("job:nccl_waiting_gpu_seconds:rate{{{}}}", matchers_);
  // The rules look back, so the last waits come after the end.
  report.waiting = SumOf(Steps(MeanOf(waiting), step_, until_));
  // A hang is known without times of the GPU, too.
  report.knows_waiting = !report.waiting.empty() &&
                         !Steps(fmt::format("{} unless on ({}) job:nccl_ranks_untimed:count{{{}}}",
                                            waiting, kJobList, matchers_),
                                step_, until_)
                              .empty();
  report.waiting_gpu_seconds = TotalOf(report.waiting, step_);
  std::erase_if(report.waiting, [&](const Point& point) { return point.time > report.to + step_; });
  for (const Sample& rank : Steps(
           MeanOf(fmt::format("sum by ({}) (comm_rank:nccl_waited_for_gpu_seconds:rate{{{}}}) > {}",
                              kWaitedFor, matchers_, kLeastWaitedFor)),
           step_))
    report.waited_for.push_back({.name = "",
                                 .labels = rank.labels,
                                 .times = TimesOf(rank.points, std::max(kLookback, 1.5 * step_)),
                                 .gpu_seconds = TotalOf(rank.points, step_)});
  std::ranges::stable_sort(report.waited_for, std::ranges::greater(), &ReportEvent::gpu_seconds);
}

void Asked::AddEvents(Report& report) const {
  std::set<std::string> targets;
  for (const Sample& target :
       Ask(fmt::format("group by (instance) (last_over_time(nccl_process_halted{{{}}}{}))",
                       matchers_, Range())))
    targets.insert(target.Label("instance"));
  const auto add = [&](Sample alert, double gap) {
    const std::string name = alert.Label("alertname"), severity = alert.Label("severity");
    for (const char* const label : {"__name__", "alertstate", "alertname", "severity", "job"})
      alert.labels.erase(label);
    for (const auto& [label, value] : job_.labels) alert.labels.erase(label);
    report.events.push_back({.name = name,
                             .severity = severity,
                             .labels = alert.labels,
                             .times = TimesOf(alert.points, gap)});
  };
  const Samples alerts =
      ask_(fmt::format("ALERTS{{alertstate=\"firing\",alertname=~\"NCCL.+\",{}}}{}", matchers_,
                       LongRange()),
           until_);
  for (const Sample& alert : alerts) add(alert, kLookback);
  // Two users or clusters may have a target of one name. A namespace is that of the daemon.
  const auto is_of_another = [&](const Sample& alert) {
    return !targets.contains(alert.Label("instance")) ||
           std::ranges::any_of(std::array{"cluster", "uid"}, [&](const char* label) {
             const std::string& value = alert.Label(label);
             return !value.empty() && value != LabelIn(job_.labels, label);
           });
  };
  // Alerts of the whole fleet, so a point a minute, or fewer of a long time.
  const double step = std::max(60.0, (until_ - time_.from) / kSearchPoints);
  for (const Sample& alert :
       Steps("ALERTS{alertstate=\"firing\","
             "alertname=~\"NCCLExporter(Down|SeriesDropped|SegmentsUnusable)\"}",
             step, until_)) {
    if (!is_of_another(alert) &&
        std::ranges::find(alerts, alert.labels, &Sample::labels) == alerts.end())
      add(alert, std::max(kLookback, 1.5 * step));
  }
  std::ranges::stable_sort(report.events, {}, &ReportEvent::begin);
}

Samples Asked::Counted(const std::string& names, const std::string& labels) const {
  const std::string series = fmt::format("{{__name__=~\"{}\",{}}}", names, matchers_);
  const std::string sum = fmt::format("sum by (__name__, {})", labels);
  Samples counts = ask_(fmt::format("{} (last_over_time({}{}))", sum, series, LongRange()), until_);
  // A scrape at the begin may have failed, and other series may have ended before.
  const Samples before =
      ask_(fmt::format("{} (last_over_time({}[{}] offset {}ms) and last_over_time({}{}))", sum,
                       series, kSoonBefore, Milliseconds(until_ - time_.from), series, LongRange()),
           until_);
  for (Sample& sample : counts) {
    const auto was = std::ranges::find(before, sample.labels, &Sample::labels);
    if (was != before.end()) sample.value = std::max(0.0, sample.value - was->value);
  }
  std::erase_if(counts, [](const Sample& sample) { return sample.value <= 0; });
  return counts;
}

void Asked::AddTraffic(Report& report) const {
  std::map<std::pair<std::string, std::string>, ReportTraffic> rows;
  const auto row_of = [&](const Sample& sample) -> auto& {
    const std::string& name = sample.Label("__name__");
    const std::string collective = name.starts_with("nccl_p2p_send")   ? "Send"
                                   : name.starts_with("nccl_p2p_recv") ? "Recv"
                                                                       : sample.Label("collective");
    return rows[{NameOfCommunicator(sample), collective}];
  };
  for (const Sample& sample :
       Counted("nccl_(collective|p2p_send|p2p_recv)_(operations|timed_operations|bytes|busy_"
               "seconds)_total",
               "comm, comm_name, collective")) {
    ReportTraffic& row = row_of(sample);
    const std::string& name = sample.Label("__name__");
    (name.ends_with("_bytes_total")              ? row.bytes
     : name.ends_with("_busy_seconds_total")     ? row.busy_seconds
     : name.ends_with("_timed_operations_total") ? row.timed_operations
                                                 : row.operations) += sample.value;
  }
  const std::string busy = fmt::format("nccl_collective_busy_seconds_total{{{}}}", matchers_);
  const std::string by_rank = fmt::format(
      "sum by (comm, comm_name, collective, rank) (last_over_time({0}{1}) - "
      "(last_over_time({0}[{3}] offset {2}ms) or 0 * last_over_time({0}{1})))",
      busy, LongRange(), Milliseconds(until_ - time_.from), kSoonBefore);
  // Ranks without times do not wait.
  for (const Sample& sample :
       ask_(fmt::format("min {0} ({1} > 0) * count {0} ({1} > 0)", kByCommunicator, by_rank),
            until_))
    row_of(sample).least_seconds += sample.value;
  for (const Sample& sample : ask_(fmt::format("count {} ({})", kByCommunicator, by_rank), until_))
    row_of(sample).ranks += static_cast<uint64_t>(std::max(0.0, sample.value));
  for (auto& [kind, row] : rows) {
    std::tie(row.comm_name, row.collective) = kind;
    row.least_seconds /= static_cast<double>(std::max<uint64_t>(row.ranks, 1));
    if (row.operations > 0) report.traffic.push_back(std::move(row));
  }
  std::ranges::stable_sort(report.traffic, std::ranges::greater(), &ReportTraffic::busy_seconds);
}

// Prometheus divides the rates of a part by its steps. Communicators of one name are one row.
void Asked::AddMeasures(Report& report) const {
  const double part = time_.seconds() / kParts;
  const auto rate = [&](const char* series, const std::string& more = "") {
    return fmt::format("rate({}{{{}{}}}{})", series, matchers_, more, RangeText(part));
  };
  const auto add = [&](const std::string& name, const std::string& expression) {
    for (const Sample& sample : Steps(expression, part)) {
      ReportMeasure measure{.name = name, .seconds = {}};
      if (!sample.labels.empty())
        measure.name += NameOf(
            {.comm_name = NameOfCommunicator(sample), .collective = sample.Label("collective")});
      for (const Point& point : sample.points) {
        // The first part begins before the time.
        if (std::isfinite(point.value) && point.time - part >= time_.from - 1e-3)
          measure.seconds.push_back(point.value);
      }
      if (!measure.seconds.empty()) report.measures.push_back(std::move(measure));
    }
  };
  std::string steps = fmt::format("min(max by (comm) ({}) > 0)", rate("nccl_rank_steps_total"));
  add(report.step = "step", "1 / " + steps);
  if (const ReportTraffic* const rarest = RarestOf(report);
      report.measures.empty() && rarest != nullptr) {
    const auto of = [&](const char* label) {
      return rate("nccl_collective_operations_total",
                  fmt::format(",collective={},{}={}", Quoted(rarest->collective), label,
                              Quoted(rarest->comm_name)));
    };
    steps = fmt::format("(max(sum by (comm, rank) ({} or {})) > 0)", of("comm_name"), of("comm"));
    add(report.step = NameOf(*rarest), "1 / " + steps);
  }
  if (report.measures.empty()) report.step.clear();
  const std::string ranks = fmt::format("sum by (comm, comm_name, collective, rank) ({}) > 0",
                                        rate("nccl_collective_busy_seconds_total"));
  const std::string least = fmt::format("min {} ({})", kByCommunicator, ranks);
  const auto per_step = [&](const std::string& of_communicators) {
    return fmt::format("avg by (comm_name, collective) ({}) / scalar({})", of_communicators, steps);
  };
  add("transfer in ", per_step(least));
  add("waiting in ", per_step(fmt::format("avg {} ({}) - {}", kByCommunicator, ranks, least)));
}

// The label `variables` has one after the other: each begins where a name of NCCL's follows a
// blank.
ProcessVariables VariablesIn(std::string_view text) {
  ProcessVariables variables;
  while (!text.empty()) {
    const size_t end = text.find(fmt::format(" {}", kNcclVariable));
    const std::string_view variable = text.substr(0, end);
    const size_t equals = variable.find('=');
    if (equals != variable.npos)
      variables.emplace(variable.substr(0, equals), variable.substr(equals + 1));
    text = end == text.npos ? "" : text.substr(end + 1);
  }
  return variables;
}

void Asked::AddFacts(Report& report) const {
  FactTable facts;
  std::set<std::string> nodes, names;
  const auto name_of = [](const Sample& process) {
    return ProcessText(process.Label("global_rank"), process.Label("pid"), process.Label("pod"),
                       process.Label("container")) +
           " on " + process.Label("hostname");
  };
  const auto add = [&](const std::string& name, const Sample& process) {
    facts[name][process.Label(name)].push_back(name_of(process));
  };
  const Samples processes =
      Ask(fmt::format("group without ({}) (last_over_time(nccl_rank_info{{{}}}{}))",
                      fmt::join(kOfRank, ", "), matchers_, Range()));
  for (const Sample& process : processes) {
    nodes.insert(process.Label("hostname"));
    for (const auto& [name, value] : process.labels) {
      if (!job_.labels.contains(name) && name != "__name__" &&
          std::ranges::count(kOfProcess, name) == 0)
        names.insert(name);
    }
  }
  for (const Sample& process : processes) {
    for (const std::string& name : names) add(name, process);
  }
  for (const Sample& process : Ask(fmt::format(
           "group by (nccl_version, {}) (last_over_time(nccl_communicator_info{{{}}}{}))",
           fmt::join(kOfProcess, ", "), matchers_, Range())))
    add("nccl_version", process);
  // Processes at the end, and earlier ones of ranks that have none then: those of a job that was
  // started again are left out.
  std::map<std::string, ProcessVariables> variables;
  for (const Sample& process : Ask(fmt::format(
           "group by (variables, {0}) (nccl_process_environment_info{{{1}}} or "
           "(last_over_time(nccl_process_environment_info{{{1}}}{2}) unless on (global_rank) "
           "nccl_process_environment_info{{{1},global_rank!=\"\"}}))",
           fmt::join(kOfProcess, ", "), matchers_, Range())))
    variables.emplace(name_of(process), VariablesIn(process.Label("variables")));
  AddVariables(variables, facts);
  report.nodes = nodes.size();
  report.facts = FactsOf(std::move(facts));
}

void Asked::AddLosses(Report& report) const {
  for (const Sample& loss :
       Counted("nccl_process_(events_dropped|timestamps_rejected)_total", "reason"))
    report.losses.push_back({.cause = loss.Label("reason"), .operations = loss.value});
  std::ranges::stable_sort(report.losses, std::ranges::greater(), &ReportLoss::operations);
}

}  // namespace

Report ReportOfPrometheus(const AskSamples& ask, const Job& job, const TimeSpan& time) {
  return Asked(ask, job, time).Fill();
}

}  // namespace nccl_exporter::exporter
