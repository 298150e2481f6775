// SPDX-License-Identifier: Apache-2.0
#include "tests/detection/monitoring.h"

#include <signal.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "tests/detection/scenario_run.h"
#include "tests/system/daemon.h"

namespace nccl_exporter::detection {
namespace {

// Not given to anybody else of this program, which runs several scenarios at once.
int OwnPort() {
  static std::mutex mutex;
  static std::set<int> taken;
  const std::lock_guard lock(mutex);
  while (true) {
    const int port = FreePort();
    if (taken.insert(port).second) return port;
  }
}

// Label `part` of the targets of a scrape job, in quotes.
constexpr std::array kParts{"''", "'detail'"};

std::string Local(int port) { return "127.0.0.1:" + std::to_string(port); }

// A program that exits at once found its port in use, or is broken.
void WaitUntilReady(exporter::ChildProcess& process, const std::string& url) {
  const bool is_ready = exporter::Eventually(
      [&] { return !process.IsRunning() || exporter::HttpGet(url).status == 200; });
  const bool is_running = process.IsRunning();
  if (is_ready && is_running) return;
  const std::string output = process.AllOutput();
  const std::string message = url + " does not answer: " + output;
  if (is_running || output.find("in use") != std::string::npos) throw VoidRun(message);
  throw std::runtime_error(message);
}

std::string Milliseconds(double seconds) {
  return std::to_string(static_cast<int>(seconds * 1000)) + "ms";
}

// Time of a text such as "2023-04-05T06:07:08.901Z".
double UnixSeconds(const std::string& text) {
  tm date{};
  double seconds = 0;
  sscanf(text.c_str(), "%d-%d-%dT%d:%d:%lf", &date.tm_year, &date.tm_mon, &date.tm_mday,
         &date.tm_hour, &date.tm_min, &seconds);
  date.tm_year -= 1900;
  date.tm_mon -= 1;
  return static_cast<double>(timegm(&date)) + seconds;
}

void AddFinding(size_t node, const nlohmann::json& finding, std::vector<PagedAlert>& alerts) {
  const std::string kind = finding["kind"];
  const bool is_wait = kind.starts_with("hang_") &&
                       finding["headline"].get<std::string>().find(" hangs since ") == std::string::npos;
  if (finding["severity"] == "info" && kind != "abandoned") return;  // accuses nobody
  PagedAlert alert{.labels = {{"alertname", (is_wait ? "wait:" : "page:") + kind},
                              {"node", std::to_string(node)}}};
  for (const char* name : {"comm", "nccl_job"}) {
    if (finding[name].is_string()) alert.labels[name] = finding[name];
  }
  if (finding["culprits"].empty()) alerts.push_back(alert);
  for (const nlohmann::json& culprit : finding["culprits"]) {
    alert.labels["rank"] = std::to_string(culprit["rank"].get<int>());
    const std::string global_rank = culprit["global_rank"];
    if (!global_rank.empty()) alert.labels["global_rank"] = global_rank;
    alert.culprit =
        global_rank.empty() ? "rank " + alert.labels["rank"] : "global rank " + global_rank;
    alerts.push_back(alert);
  }
}

}  // namespace

Monitoring::Monitoring(int nodes, const RuleSet& rules)
    : rules_(rules), prometheus_port_(OwnPort()), alertmanager_port_(OwnPort()) {
  for (int node = 0; node < nodes; ++node) {
    std::filesystem::create_directory(scratch_.path() + "/segments" + std::to_string(node));
    ports_.push_back(OwnPort());
    daemons_.push_back(StartDaemon(node));
  }
  are_held_.resize(ports_.size());
  asked_.resize(ports_.size());
  answered_.resize(ports_.size());
  WriteConfiguration();
  alertmanager_ = std::make_unique<exporter::ChildProcess>(std::vector<std::string>{
      kAlertmanager, "--config.file=" + scratch_.path() + "/alertmanager.yml",
      "--cluster.listen-address=", "--storage.path=" + scratch_.path() + "/alertmanager",
      "--web.listen-address=" + Local(alertmanager_port_)});
  prometheus_ = StartPrometheus();
  WaitUntilReady(*alertmanager_, "http://" + Local(alertmanager_port_) + "/-/ready");
  for (int node = 0; node < nodes; ++node) {
    const auto place = static_cast<size_t>(node);
    WaitUntilReady(*daemons_[place], "http://" + Local(ports_[place]) + "/-/ready");
  }
  WaitUntilReady(*prometheus_, "http://" + Local(prometheus_port_) + "/-/ready");
}

void Monitoring::WriteConfiguration() const {
  std::ofstream(scratch_.path() + "/alertmanager.yml")
      << "route: {receiver: pager}\nreceivers: [{name: pager}]\n";
  std::ofstream(scratch_.path() + "/watchdog.yml")
      << "groups: [{name: detection, rules: [{alert: " << kWatchdog << ", expr: vector(1)}]}]\n";
  std::ofstream prometheus(scratch_.path() + "/prometheus.yml");
  prometheus << "global: {scrape_interval: " << Milliseconds(rules_.scrape_interval_s)
             << ", scrape_timeout: " << Milliseconds(rules_.scrape_interval_s)
             << ", evaluation_interval: " << Milliseconds(rules_.evaluation_interval_s) << "}\n"
             << "rule_files: ['" << rules_.directory << "/*.yml', '" << scratch_.path()
             << "/watchdog.yml']\n"
             << "alerting: {alertmanagers: [{static_configs: [{targets: ['"
             << Local(alertmanager_port_) << "']}]}]}\n"
             << "scrape_configs:\n";
  // As deploy/prometheus/examples/prometheus-parts.yml.
  AddScrapes(prometheus, "alerts", rules_.scrape_interval_s, "");
  AddScrapes(prometheus, "detail", rules_.detail_interval_s, ", part: detail");
}

void Monitoring::AddScrapes(std::ostream& configuration, const std::string& part, double interval_s,
                            const std::string& labels) const {
  configuration << "- job_name: nccl-exporter-" << part << "\n"
                << "  scrape_interval: " << Milliseconds(interval_s) << "\n"
                << "  honor_labels: true\n"
                << "  params: {'collect[]': [" << part << "]}\n"
                << "  static_configs:\n";
  for (size_t node = 0; node < ports_.size(); ++node) {
    configuration << "  - {targets: ['" << Local(ports_[node])
                  << "'], labels: {job: nccl-exporter, instance: 'node-" << node << ":9828'"
                  << labels << "}}\n";
  }
}

std::unique_ptr<exporter::ChildProcess> Monitoring::StartDaemon(int node) const {
  return std::make_unique<exporter::ChildProcess>(std::vector<std::string>{
      kDaemonPath, "--web.listen-address=" + Local(ports_[static_cast<size_t>(node)]),
      "--segment.dir=" + scratch_.path() + "/segments" + std::to_string(node),
      "--segment.retention=" + std::to_string(static_cast<int>(rules_.retention_s)) + "s",
      "--findings.time-scale=" + std::to_string(rules_.time_scale), "--log.level=warn"});
}

std::string Monitoring::TopCommand(int node) const {
  // A benchmark that is killed leaves its terminals behind: they end by themselves.
  constexpr int kMostSeconds = 600;
  return "exec timeout --foreground " + std::to_string(kMostSeconds) + " " + kDaemonPath +
         " top --segment.dir=" + scratch_.path() + "/segments" + std::to_string(node) +
         " --findings.time-scale=" + std::to_string(rules_.time_scale) + " --daemon=http://" +
         Local(ports_[static_cast<size_t>(node)]);
}

std::vector<PagedAlert> Monitoring::Reported(const PagedAlert& alert) const {
  std::vector<std::string> command{kDaemonPath, "report", "--json",
                                   "--prometheus=http://" + Local(prometheus_port_)};
  for (const auto& [flag, label] :
       {std::pair("--job", "nccl_job"), std::pair("--namespace", "namespace"),
        std::pair("--uid", "uid")})
    command.push_back(std::string(flag) + "=" + alert.Label(label));
  const exporter::Finished answer = exporter::RunToEnd(command);
  std::vector<PagedAlert> alerts;
  if (answer.exit_code != 0) throw std::runtime_error("report: " + answer.output);
  const auto report = nlohmann::json::parse(answer.output);
  for (const auto& event : report["events"]) {
    alerts.push_back({.labels = event["labels"]});
    alerts.back().labels["alertname"] = event["name"];
  }
  return alerts;
}

std::unique_ptr<exporter::ChildProcess> Monitoring::StartPrometheus() const {
  return std::make_unique<exporter::ChildProcess>(std::vector<std::string>{
      rules_.prometheus, "--config.file=" + scratch_.path() + "/prometheus.yml",
      "--storage.tsdb.path=" + scratch_.path() + "/prometheus",
      "--web.listen-address=" + Local(prometheus_port_), "--rules.alert.resend-delay=1s",
      "--query.lookback-delta=" + Milliseconds(rules_.lookback_s), "--log.level=warn"});
}

void Monitoring::End(const std::string& name, exporter::ChildProcess& process) {
  const bool was_running = process.IsRunning();
  process.Signal(SIGTERM);
  const int exit_code = process.Wait();
  if (was_running && exit_code == 0) return;
  faults_.push_back(name + (was_running ? " ended with " : " had ended with ") +
                    std::to_string(exit_code) + ": " + process.AllOutput());
}

void Monitoring::RestartDaemon(int node) {
  std::unique_ptr<exporter::ChildProcess>& daemon = daemons_[static_cast<size_t>(node)];
  End("the daemon of node " + std::to_string(node), *daemon);
  daemon = StartDaemon(node);
}

void Monitoring::HoldDaemon(int node, bool is_held) {
  are_held_[static_cast<size_t>(node)] = is_held;
  daemons_[static_cast<size_t>(node)]->Signal(is_held ? SIGSTOP : SIGCONT);
}

void Monitoring::RestartPrometheus() {
  NoteFailedRules();
  End("Prometheus", *prometheus_);
  prometheus_ = StartPrometheus();
}

std::optional<std::map<std::string, double>> Monitoring::Query(
    const std::string& expression) const {
  const exporter::HttpAnswer answer =
      exporter::HttpGet("http://" + Local(prometheus_port_) + "/api/v1/query?query=" + expression);
  const nlohmann::json json = nlohmann::json::parse(answer.body, nullptr, false);
  if (answer.status != 200 || json.is_discarded()) return std::nullopt;
  std::map<std::string, double> samples;
  for (const nlohmann::json& series : json["data"]["result"])
    samples[series["metric"].value("instance", "")] =
        std::stod(series["value"][1].get<std::string>());
  return samples;
}

std::optional<double> Monitoring::OwnCount(const std::string& name) const {
  const exporter::HttpAnswer answer =
      exporter::HttpGet("http://" + Local(prometheus_port_) + "/metrics");
  if (answer.status != 200) return std::nullopt;
  double sum = 0;
  std::istringstream lines(answer.body);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name + "{")) sum += std::stod(line.substr(line.rfind(' ')));
  }
  return sum;
}

void Monitoring::NoteFailedRules() {
  const std::optional<double> failed = OwnCount("prometheus_rule_evaluation_failures_total");
  if (failed == 0.0) return;
  faults_.push_back(failed ? "rules failed: " + std::to_string(static_cast<int>(*failed)) +
                                 " evaluations: " + prometheus_->ErrorOutput()
                           : "Prometheus does not answer");
}

std::string Monitoring::Neglected(double seconds) const {
  const std::string range = "[" + std::to_string(static_cast<int>(seconds)) + "s])";
  for (const char* part : kParts) {
    const double interval_s =
        part == kParts.front() ? rules_.scrape_interval_s : rules_.detail_interval_s;
    const auto least = static_cast<int>(seconds / interval_s * (1 - kMostMissing));
    const auto made = Query(std::string("count_over_time(up{part=") + part + "}" + range);
    const auto complete = !made ? 0 : std::ranges::count_if(*made, [&](const auto& node) {
      return node.second >= least;
    });
    if (complete < std::ssize(ports_))
      return "too few scrapes of " + std::to_string(std::ssize(ports_) - complete) +
             " nodes, of part=" + part;
  }
  const double missed =
      OwnCount("prometheus_rule_group_iterations_missed_total").value_or(1) /
      std::max(1.0, OwnCount("prometheus_rule_group_iterations_total").value_or(1));
  return missed > kMostMissing ? "evaluations missed: " + std::to_string(missed) : "";
}

std::vector<std::string> Monitoring::Faults() {
  std::vector<std::pair<std::string, exporter::ChildProcess*>> processes{
      {"Prometheus", prometheus_.get()}, {"Alertmanager", alertmanager_.get()}};
  for (size_t node = 0; node < daemons_.size(); ++node)
    processes.emplace_back("the daemon of node " + std::to_string(node), daemons_[node].get());
  for (const auto& [name, process] : processes) {
    if (!process->IsRunning()) faults_.push_back(name + " has ended: " + process->AllOutput());
  }
  NoteFailedRules();
  for (const char* part : kParts) {
    const auto scraped = Query(std::string("max_over_time(up{part=") + part + "}[10s])==1");
    if (!scraped || scraped->size() < ports_.size())
      faults_.push_back("at the end a daemon is not scraped, of part=" + std::string(part));
  }
  const auto alerts = Alerts().value_or(std::vector<PagedAlert>());
  if (std::ranges::none_of(
          alerts, [](const PagedAlert& alert) { return alert.Label("alertname") == kWatchdog; }))
    faults_.push_back("alerts do not arrive");
  return faults_;
}

std::vector<std::string> Monitoring::Unanswered(double seconds) const {
  std::vector<std::string> lines;
  const std::string range = "[" + std::to_string(static_cast<int>(seconds)) + "s])";
  for (const char* part : kParts) {
    const auto shares = Query(std::string("avg_over_time(up{part=") + part + "}" + range);
    for (const auto& [node, share] : shares.value_or(std::map<std::string, double>())) {
      if (share < 1 - kMostMissing)
        lines.push_back(node + " answered a share of " + std::to_string(share) +
                        " of the scrapes, of part=" + part);
    }
  }
  for (size_t node = 0; node < ports_.size(); ++node) {
    if (answered_[node] < asked_[node] * (1 - kMostMissing))
      lines.push_back("the daemon of node " + std::to_string(node) + " told its findings " +
                      std::to_string(answered_[node]) + " of " + std::to_string(asked_[node]) +
                      " times");
  }
  return lines;
}

std::vector<PagedAlert> Monitoring::Findings() {
  std::vector<PagedAlert> alerts;
  for (size_t node = 0; node < ports_.size(); ++node) {
    if (are_held_[node]) continue;
    const exporter::HttpAnswer answer =
        exporter::HttpGet("http://" + Local(ports_[node]) + "/api/v1/findings");
    const nlohmann::json json = nlohmann::json::parse(answer.body, nullptr, false);
    ++asked_[node];
    if (answer.status != 200 || !json.is_object()) continue;
    ++answered_[node];
    for (const nlohmann::json& finding : json["findings"]) AddFinding(node, finding, alerts);
  }
  return alerts;
}

std::optional<std::vector<PagedAlert>> Monitoring::Alerts() const {
  const exporter::HttpAnswer answer =
      exporter::HttpGet("http://" + Local(alertmanager_port_) + "/api/v2/alerts?inhibited=false");
  const nlohmann::json list = nlohmann::json::parse(answer.body, nullptr, false);
  if (answer.status != 200 || !list.is_array()) return std::nullopt;
  std::vector<PagedAlert> alerts;
  for (const nlohmann::json& alert : list) {
    alerts.push_back({.labels = alert["labels"], .started_s = UnixSeconds(alert["startsAt"])});
  }
  return alerts;
}

}  // namespace nccl_exporter::detection
