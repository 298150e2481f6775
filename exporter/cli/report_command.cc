// SPDX-License-Identifier: Apache-2.0
// `nccl-exporter report`: its flags, clock and files.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>

#include "collector/collector.h"
#include "collector/trace/node_trace.h"
#include "exporter/cli/client/http_config.h"
#include "exporter/cli/commands.h"
#include "exporter/cli/daemon_judgement.h"
#include "exporter/cli/node_access.h"
#include "exporter/cli/report/prometheus.h"
#include "exporter/cli/report/report_costs.h"
#include "exporter/cli/report/report_diff.h"
#include "exporter/cli/report/report_page.h"
#include "exporter/cli/report/report_request.h"
#include "exporter/cli/terminal.h"
#include "exporter/findings/node_judge.h"
#include "exporter/text/duration_text.h"
#include "exporter/trace/new_file.h"

namespace nccl_exporter::exporter {
namespace {

constexpr std::chrono::hours kCostsTime{7 * 24};  // without a time
constexpr std::chrono::hours kRecent{24};         // longer than ended processes are kept

// That of the terminal. Lines for other programs have no limit.
size_t LineWidth() { return ::isatty(STDOUT_FILENO) == 1 ? Terminal::columns() : 0; }

double Now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

ReportAnswer OfFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + ": " + std::strerror(errno));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  try {
    return {.report = ReportIn(text)};
  } catch (const std::runtime_error& wrong) {
    throw std::runtime_error(path + ": " + wrong.what());
  }
}

// Gives the communicators what their rings still hold, which a snapshot has of living ones only.
void AddRecent(const collector::NodeTrace& trace, collector::NodeSnapshot& node) {
  using Key = std::tuple<uint64_t, uint64_t, uint64_t, uint64_t>;  // user, pid, communicator, rank
  std::map<Key, const collector::TracedCommunicator*> traced;
  for (const collector::TracedProcess& process : trace.processes) {
    for (const collector::TracedCommunicator& communicator : process.communicators)
      traced[{process.uid, process.pid, communicator.id, communicator.rank}] = &communicator;
  }
  for (collector::ProcessSnapshot& process : node.processes) {
    for (collector::CommunicatorSnapshot& communicator : process.communicators) {
      const auto found =
          traced.find({process.uid, process.pid, communicator.id, communicator.rank});
      if (found == traced.end() || !communicator.recent.empty()) continue;
      for (const collector::TracedOperation& operation : found->second->operations) {
        if (collector::TrafficOf(operation.function) != collector::Traffic::kCollective) continue;
        communicator.recent.push_back(
            {.function = operation.function,
             .size_class = static_cast<uint8_t>(SizeClassOf(operation.bytes)),
             .sequence = operation.sequence,
             .launch_ns = static_cast<uint64_t>(
                 std::max<int64_t>(0, operation.stop_ns - operation.start_ns)),
             .members = operation.members});
      }
    }
  }
}

// `unreadable` says which segments could not be read.
ReportAnswer OfSegments(const ReportRequest& request, const Options& options,
                        std::string& unreadable) {
  const Thresholds thresholds = ThresholdsOf(options);
  collector::Collector collector = CollectorOf(options);
  const auto node = collector.Snapshot();
  AddRecent(collector.Recent(kRecent), *node);
  unreadable = UnreadableDirectories(*node);
  if (!unreadable.empty() && node->processes.empty()) throw std::runtime_error(unreadable);
  const ShownJudgement shown = Shown(DaemonAt(request.daemon, options.segment_dirs)(),
                                     NodeJudge(thresholds).Judge(*node), node->taken_realtime_ns);
  return AnswerOfNode(request, *node, shown.judgement, thresholds, NodeName());
}

ReportAnswer OfPrometheus(const ReportRequest& request) {
  return AnswerOfPrometheus(
      request, PrometheusAt(request.prometheus, ReadHttpConfig(request.http_config_file)), Now());
}

int RunReport(const ReportRequest& request, const Options& options) {
  std::string unreadable;
  const ReportAnswer answer = !request.file.empty()    ? OfFile(request.file)
                              : request.is_of_segments ? OfSegments(request, options, unreadable)
                                                       : OfPrometheus(request);
  if (!request.html_file.empty()) {
    if (!answer.report) return Fail(kRuntimeFailure, "several jobs match: choose one with --job");
    const std::string fault = WriteNewFile(request.html_file, ReportPage(*answer.report));
    if (!fault.empty()) return Fail(kRuntimeFailure, fault);
  }
  int printed = kSuccess;
  if (request.is_json) {
    printed = Print(answer.Json());
  } else if (request.html_file.empty()) {
    printed = Print(answer.Text(LineWidth()));
  }
  return printed == kSuccess && !unreadable.empty() ? Fail(kRuntimeFailure, unreadable) : printed;
}

int PrintWith(const std::vector<std::string>& warnings, const std::string& text) {
  const int printed = Print(text);
  return printed == kSuccess && !warnings.empty()
             ? Fail(kRuntimeFailure, "the answer is incomplete: " + warnings.front())
             : printed;
}

// One of two that are compared: of a file, or of a job.
Report Compared(ReportRequest request, const std::string& side) {
  if (std::filesystem::exists(side)) return *OfFile(side).report;
  request.wanted["nccl_job"] = side;
  const ReportAnswer answer = OfPrometheus(request);
  if (!answer.report)
    throw std::runtime_error(
        "several jobs match: choose one with --namespace, --cluster and --uid");
  return *answer.report;
}

int RunDiff(const ReportRequest& request) {
  ReportRequest before = request, after = request;
  if (request.compared.size() == 1) {
    if (!request.at) return Fail(kBadUsage, "give two jobs or files, or one job and --at");
    before.at = after.at = {};
    before.from = *request.at - kAroundSeconds;
    before.to = after.from = *request.at;
    after.to = *request.at + kAroundSeconds;
  }
  const Report old = Compared(before, request.compared.front());
  Report now = Compared(after, request.compared.back());
  now.warnings.insert(now.warnings.end(), old.warnings.begin(), old.warnings.end());
  return PrintWith(now.warnings,
                   request.is_json ? DiffJson(old, now) : DiffText(old, now, LineWidth()));
}

int RunCosts(const ReportRequest& request) {
  std::vector<std::string> warnings;
  const AskSamples ask =
      Noting(PrometheusAt(request.prometheus, ReadHttpConfig(request.http_config_file)), warnings);
  const auto costs = CostsOf(ask, request.by, request.wanted, TimeOf(request, Now()));
  return PrintWith(warnings, request.is_json ? CostsJson(costs) : CostsText(costs, LineWidth()));
}

CLI::Option* AddMoment(CLI::App& app, const std::string& name, std::optional<double>& target,
                       const std::string& help) {
  const auto store = [&target](const std::string& value) {
    target = MomentIn(value, Now());
    return target ? "" : "write 2023-11-14, 2023-11-14T22:15 or 22:15, in UTC";
  };
  return AddChecked(app, name, store, help);
}

void AddTimeFlags(CLI::App& app, ReportRequest& request) {
  CLI::Option* const at =
      AddMoment(app, "--at", request.at,
                "A moment, with ten minutes before and after: 2023-11-14T22:15, or 22:15 for the "
                "last that has been. UTC.");
  CLI::Option* const from = AddMoment(app, "--from", request.from,
                                      "Begin of the time to report, likewise. 24 hours ago "
                                      "without it, and seven days ago for costs.");
  CLI::Option* const to = AddMoment(app, "--to", request.to, "End of that time; now without it.");
  const auto store = [&request](const std::string& value) {
    request.since = ParseDuration(value);
    return request.since ? "" : "write seconds, or a duration like 8h";
  };
  CLI::Option* const since =
      AddChecked(app, "--since", store, "Begin of the time to report, as a duration before now.");
  at->excludes(from)->excludes(to)->excludes(since);
  from->excludes(since);
}

CLI::Option* AddServerFlags(CLI::App& app, ReportRequest& request) {
  const auto store = [&request](const std::string& value) {
    std::string fault;
    if (const auto address = ParseHttpAddress(value, fault)) request.prometheus = *address;
    return fault;
  };
  CLI::Option* const prometheus =
      AddChecked(app, "--prometheus", store,
                 "Address of Prometheus, or of a server with its HTTP API: "
                 "http[s]://HOST[:PORT][/PREFIX].");
  prometheus->default_str(request.prometheus.Text());
  AddHttpConfigFlag(app, request.http_config_file);
  AddTimeFlags(app, request);
  AddLabelFlag(app, "--cluster", "cluster", "Cluster", request.wanted);
  app.add_flag("--json", request.is_json, "Print one JSON object.");
  return prometheus;
}

void AddDiffFlags(CLI::App& app, ReportRequest& request) {
  app.add_option("JOB_OR_FILE", request.compared,
                 "Two jobs, or reports that --json wrote; or one job, with --at.")
      ->required()
      ->expected(1, 2);
  AddServerFlags(app, request);
  AddLabelFlag(app, "--namespace", "namespace", "Namespace", request.wanted);
  AddLabelFlag(app, "--uid", "uid", "Number of the owner", request.wanted);
}

void AddCostsFlags(CLI::App& app, ReportRequest& request) {
  request.since = kCostsTime;
  AddServerFlags(app, request);
  app.add_option("--by", request.by, "team (or Slurm account), user or job.")
      ->check(CLI::IsMember({"team", "user", "job"}))
      ->default_str(request.by);
}

}  // namespace

void AddReportFlags(CLI::App& app, ReportRequest& request) {
  request.daemon = kDefaultDaemon;
  app.require_subcommand(0, 1);
  CLI::Option* const file =
      app.add_option("FILE", request.file, "A report that --json wrote, to be shown again.");
  CLI::Option* const prometheus = AddServerFlags(app, request);
  AddLabelFlags(app, request.wanted);
  app.add_flag("--segments", request.is_of_segments,
               "Report from --segment.dir of this node, without Prometheus: also processes that "
               "were killed.")
      ->excludes(prometheus)
      ->excludes(file);
  AddDaemonFlag(app, request.daemon);
  app.add_option("--html", request.html_file,
                 "File to write as one page of HTML that needs nothing else.");
}

Command ReportCommand() {
  const auto request = std::make_shared<ReportRequest>();
  return {.name = "report",
          .help =
              "Print what a job did, what it lost by waiting and for whom: from Prometheus, from "
              "the segments of this node, or from a file.",
          .daemon_flags = {"--segment.dir", "--findings.config", "--findings.time-scale"},
          .add_flags = [request](CLI::App& app) { AddReportFlags(app, *request); },
          .run = [request](const Options& options) { return RunReport(*request, options); }};
}

Command ReportDiffCommand() {
  const auto request = std::make_shared<ReportRequest>();
  return {.name = "report diff",
          .help =
              "Print what changed beyond noise, in time per step, the largest first: between two "
              "jobs, two files, or before and after a moment of one job. Nothing if nothing did.",
          .add_flags = [request](CLI::App& app) { AddDiffFlags(app, *request); },
          .run = [request](const Options&) { return RunDiff(*request); }};
}

Command ReportCostsCommand() {
  const auto request = std::make_shared<ReportRequest>();
  return {.name = "report costs",
          .help = "Print the GPU time that waiting cost, by cause and as a share of the fleet.",
          .add_flags = [request](CLI::App& app) { AddCostsFlags(app, *request); },
          .run = [request](const Options&) { return RunCosts(*request); }};
}

}  // namespace nccl_exporter::exporter
