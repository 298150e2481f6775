// SPDX-License-Identifier: Apache-2.0
// `nccl-exporter report`: its flags, clock and files.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "exporter/cli/commands.h"
#include "exporter/cli/daemon_judgement.h"
#include "exporter/cli/node_access.h"
#include "exporter/cli/report/http_config.h"
#include "exporter/cli/report/prometheus.h"
#include "exporter/cli/report/report_page.h"
#include "exporter/cli/report/report_request.h"
#include "exporter/cli/terminal.h"
#include "exporter/findings/node_judge.h"
#include "exporter/text/duration_text.h"
#include "exporter/trace/new_file.h"

namespace nccl_exporter::exporter {
namespace {

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

// `unreadable` says which segments could not be read.
ReportAnswer OfSegments(const ReportRequest& request, const Options& options,
                        std::string& unreadable) {
  const Thresholds thresholds = ThresholdsOf(options);
  const auto node = CollectorOf(options).Snapshot();
  unreadable = UnreadableDirectories(*node);
  if (!unreadable.empty() && node->processes.empty()) throw std::runtime_error(unreadable);
  const ShownJudgement shown = Shown(DaemonAt(request.daemon, options.segment_dirs)(),
                                     NodeJudge(thresholds).Judge(*node), node->taken_realtime_ns);
  return AnswerOfNode(request, *node, shown.judgement, thresholds, NodeName());
}

int RunReport(const ReportRequest& request, const Options& options) {
  std::string unreadable;
  const ReportAnswer answer =
      !request.file.empty() ? OfFile(request.file)
      : request.is_of_segments
          ? OfSegments(request, options, unreadable)
          : AnswerOfPrometheus(
                request, PrometheusAt(request.prometheus, ReadHttpConfig(request.http_config_file)),
                Now());
  if (!request.html_file.empty()) {
    if (!answer.report) return Fail(kRuntimeFailure, "several jobs match: choose one with --job");
    const std::string fault = WriteNewFile(request.html_file, ReportPage(*answer.report));
    if (!fault.empty()) return Fail(kRuntimeFailure, fault);
  }
  int printed = kSuccess;
  if (request.is_json) {
    printed = Print(answer.Json());
  } else if (request.html_file.empty()) {
    printed = Print(answer.Text(Terminal::columns()));
  }
  return printed == kSuccess && !unreadable.empty() ? Fail(kRuntimeFailure, unreadable) : printed;
}

CLI::Option* AddMoment(CLI::App& app, const std::string& name, std::optional<double>& target,
                       const std::string& help) {
  const auto store = [&target](const std::string& value) {
    target = MomentIn(value, Now());
    return target ? "" : "write 2023-11-14T22:15 or 22:15, in UTC";
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
                                      "without it.");
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

}  // namespace

void AddReportFlags(CLI::App& app, ReportRequest& request) {
  request.daemon = kDefaultDaemon;
  CLI::Option* const file =
      app.add_option("FILE", request.file, "A report that --json wrote, to be shown again.");
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
  AddLabelFlags(app, request.wanted);
  AddLabelFlag(app, "--cluster", "cluster", "Cluster", request.wanted);
  AddTimeFlags(app, request);
  app.add_flag("--segments", request.is_of_segments,
               "Report from --segment.dir of this node, without Prometheus: also processes that "
               "were killed.")
      ->excludes(prometheus)
      ->excludes(file);
  AddDaemonFlag(app, request.daemon);
  app.add_flag("--json", request.is_json, "Print one JSON object.");
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

}  // namespace nccl_exporter::exporter
