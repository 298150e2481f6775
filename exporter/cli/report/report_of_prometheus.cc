// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/report/report_of_prometheus.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

namespace nccl_exporter::exporter {
namespace {

// Points of a chart, and of a search for the time in which the job ran.
constexpr double kPoints = 240, kSearchPoints = 3000;
// Prometheus shows a value for this long. A gap of an alert that is longer ends it.
constexpr double kLookback = 300;
// GPUs that wait for a rank. Less is jitter.
constexpr const char* kLeastWaitedFor = "0.05";
constexpr size_t kMostRanks = 100, kMostNamed = 8, kMostDiffering = 8;

// Labels of nccl_rank_info that ranks, nodes and communicators have of their own.
constexpr std::array kOfRank{"comm",       "comm_name",  "rank",          "timing_source",
                             "gpu_uuid",   "pci_bus_id", "timing_reason", "adapter",
                             "local_rank", "job",        "part",          "slurm_step_id",
                             "group_rank", "gpu"};
constexpr std::array kOfProcess{"instance", "hostname",  "pod",        "pod_uid",
                                "pid",      "container", "global_rank"};
constexpr const char* kWaitedFor = "global_rank, gpu, hostname, instance, pod, pid";

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
    AddFacts(report);
    AddLosses(report);
    return report;
  }

 private:
  Samples Ask(const std::string& query) const { return ask_(query, time_.to); }
  // Points of an expression, so far apart.
  Samples Steps(const std::string& expression, double step) const {
    return Ask(fmt::format("({})[{}ms:{}ms]", expression, Milliseconds(time_.seconds()),
                           Milliseconds(step)));
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
  void AddFacts(Report& report) const;
  void AddFact(const std::string& name, const Samples& counts, Report& report) const;
  void AddLosses(Report& report) const;

  const AskSamples& ask_;
  const Job& job_;
  const std::string matchers_;
  TimeSpan time_;  // in which the job ran, at most a step more
  double until_;   // in which its last counts and its last alerts come
  double step_ = 1;
};

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
  // The rules record it once in a minute, which may be more or less than a step.
  report.waiting = SumOf(
      Steps(fmt::format("avg_over_time({}{}) or {}", waiting, RangeText(step_), waiting), step_));
  report.knows_waiting = !report.waiting.empty();
  report.waiting_gpu_seconds = TotalOf(report.waiting, step_);
  for (const Sample& rank :
       Steps(fmt::format("sum by ({}) (comm_rank:nccl_waited_for_gpu_seconds:rate{{{}}}) > {}",
                         kWaitedFor, matchers_, kLeastWaitedFor),
             step_))
    report.waited_for.push_back({.name = "",
                                 .labels = rank.labels,
                                 .times = TimesOf(rank.points, kLookback),
                                 .gpu_seconds = TotalOf(rank.points, step_)});
  std::ranges::stable_sort(report.waited_for, std::ranges::greater(), &ReportEvent::gpu_seconds);
  if (report.waited_for.size() > kMostRanks) report.waited_for.resize(kMostRanks);
}

void Asked::AddEvents(Report& report) const {
  std::set<std::string> targets;
  for (const Sample& target :
       Ask(fmt::format("group by (instance) (last_over_time(nccl_process_halted{{{}}}{}))",
                       matchers_, Range())))
    targets.insert(target.Label("instance"));
  const auto ask = [&](const std::string& matchers) {
    return ask_(fmt::format("ALERTS{{alertstate=\"firing\",{}}}{}", matchers, LongRange()), until_);
  };
  Samples alerts = ask("alertname=~\"NCCL.+\"," + matchers_);
  // Two users or clusters may have a target of one name.
  const auto is_of_another = [&](const Sample& alert) {
    return !targets.contains(alert.Label("instance")) ||
           std::ranges::any_of(job_.labels, [&](const auto& label) {
             const std::string& value = alert.Label(label.first);
             return !value.empty() && value != label.second;
           });
  };
  for (Sample& alert : ask("alertname=~\"NCCLExporter(Down|SeriesDropped|SegmentsUnusable)\"")) {
    if (is_of_another(alert) ||
        std::ranges::find(alerts, alert.labels, &Sample::labels) != alerts.end())
      continue;
    alerts.push_back(std::move(alert));
  }
  for (Sample& alert : alerts) {
    const std::string name = alert.Label("alertname"), severity = alert.Label("severity");
    for (const char* const label : {"__name__", "alertstate", "alertname", "severity", "job"})
      alert.labels.erase(label);
    for (const auto& [label, value] : job_.labels) alert.labels.erase(label);
    report.events.push_back({.name = name,
                             .severity = severity,
                             .labels = alert.labels,
                             .times = TimesOf(alert.points, kLookback)});
  }
  std::ranges::stable_sort(report.events, {}, &ReportEvent::begin);
}

Samples Asked::Counted(const std::string& names, const std::string& labels) const {
  const std::string series = fmt::format("{{__name__=~\"{}\",{}}}", names, matchers_);
  const std::string sum = fmt::format("sum by (__name__, {})", labels);
  Samples counts = ask_(fmt::format("{} (last_over_time({}{}))", sum, series, LongRange()), until_);
  const Samples before = ask_(fmt::format("{} ({})", sum, series), time_.from);
  for (Sample& sample : counts) {
    const auto was = std::ranges::find(before, sample.labels, &Sample::labels);
    if (was != before.end()) sample.value = std::max(0.0, sample.value - was->value);
  }
  std::erase_if(counts, [](const Sample& sample) { return sample.value <= 0; });
  return counts;
}

void Asked::AddTraffic(Report& report) const {
  using Key = std::tuple<std::string, std::string>;  // communicator and collective
  std::map<Key, ReportTraffic> rows;
  const auto row_of = [&](const Sample& sample) -> ReportTraffic& {
    const std::string& name = sample.Label("__name__");
    const std::string collective = name.starts_with("nccl_p2p_send")   ? "Send"
                                   : name.starts_with("nccl_p2p_recv") ? "Recv"
                                                                       : sample.Label("collective");
    ReportTraffic& row = rows[{sample.Label("comm"), collective}];
    row.comm = sample.Label("comm");
    row.collective = collective;
    return row;
  };
  for (const Sample& sample :
       Counted("nccl_(collective|p2p_send|p2p_recv)_(operations|timed_operations|bytes|busy_"
               "seconds)_total",
               "comm, comm_name, collective")) {
    ReportTraffic& row = row_of(sample);
    row.comm_name = sample.Label("comm_name");
    const std::string& name = sample.Label("__name__");
    (name.ends_with("_bytes_total")              ? row.bytes
     : name.ends_with("_busy_seconds_total")     ? row.busy_seconds
     : name.ends_with("_timed_operations_total") ? row.timed_operations
                                                 : row.operations) += sample.value;
  }
  const std::string busy = fmt::format("nccl_collective_busy_seconds_total{{{}}}", matchers_);
  const std::string by_rank = fmt::format(
      "sum by (comm, collective, rank) (last_over_time({0}{1}) - (({0} offset {2}ms) or 0 * "
      "last_over_time({0}{1})))",
      busy, LongRange(), Milliseconds(until_ - time_.from));
  const auto each = [&](const char* what) {
    return ask_(fmt::format("{} by (comm, collective) ({})", what, by_rank), until_);
  };
  for (const Sample& sample : each("min"))
    row_of(sample).least_seconds = std::max(0.0, sample.value);
  for (const Sample& sample : each("count"))
    row_of(sample).ranks = static_cast<uint64_t>(std::max(0.0, sample.value));
  for (auto& [key, row] : rows) {
    if (row.operations > 0) report.traffic.push_back(std::move(row));
  }
  std::ranges::stable_sort(report.traffic, std::ranges::greater(), &ReportTraffic::busy_seconds);
}

void Asked::AddFact(const std::string& name, const Samples& counts, Report& report) const {
  std::map<std::string, double> values;
  for (const Sample& sample : counts) values[sample.Label(name)] += sample.value;
  std::vector<ReportFact> facts;
  for (const auto& [value, processes] : values)
    facts.push_back({.name = name, .value = value, .processes = static_cast<uint64_t>(processes)});
  std::ranges::stable_sort(facts, std::ranges::greater(), &ReportFact::processes);
  for (size_t i = 1; i < std::min(facts.size(), kMostDiffering); ++i) {
    for (const Sample& rank : Ask(fmt::format(
             "group by (global_rank, hostname) (last_over_time(nccl_rank_info{{{},{}={}}}{}))",
             matchers_, name, Quoted(facts[i].value), Range()))) {
      if (facts[i].on.size() == kMostNamed) break;
      facts[i].on.push_back(rank.Label("global_rank").empty()
                                ? rank.Label("hostname")
                                : fmt::format("global rank {} on {}", rank.Label("global_rank"),
                                              rank.Label("hostname")));
    }
  }
  report.facts.insert(report.facts.end(), facts.begin(), facts.end());
}

void Asked::AddFacts(Report& report) const {
  const std::string info =
      fmt::format("last_over_time(nccl_rank_info{{{}}}{})", matchers_, Range());
  const Samples kinds =
      Ask(fmt::format("count without ({}) (group without ({}) ({}))", fmt::join(kOfProcess, ", "),
                      fmt::join(kOfRank, ", "), info));
  std::set<std::string> names;
  for (const Sample& kind : kinds) {
    for (const auto& [name, value] : kind.labels) {
      if (!job_.labels.contains(name) && name != "__name__") names.insert(name);
    }
  }
  for (const std::string& name : names) AddFact(name, kinds, report);
  for (const Sample& sample :
       Ask(fmt::format("count by (nccl_version) (group by (nccl_version, {}) "
                       "(last_over_time(nccl_communicator_info{{{}}}{})))",
                       "instance, pod, container, pid, global_rank", matchers_, Range())))
    report.facts.push_back({.name = "nccl_version",
                            .value = sample.Label("nccl_version"),
                            .processes = static_cast<uint64_t>(sample.value)});
  for (const Sample& sample : Ask(fmt::format("count(group by (hostname) ({}))", info)))
    report.nodes = static_cast<uint64_t>(sample.value);
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
