// SPDX-License-Identifier: Apache-2.0
// `nccl-exporter trace` and its parts.
#include "exporter/trace/trace_command.h"

#include <pthread.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "exporter/cli/commands.h"
#include "exporter/cli/node_access.h"
#include "exporter/text/duration_text.h"

namespace nccl_exporter::exporter {
namespace {

void AddOutput(CLI::App& app, TraceRequest& request) {
  const auto store = [&request](const std::string& path) {
    request.output = path;
    if (path.empty()) return "the name is empty";
    // The file is Chrome's: a name of Perfetto's own format would mislead.
    const bool is_of_perfetto = path.ends_with(".pftrace") || path.ends_with(".pftrace.gz");
    return is_of_perfetto ? "write NAME.json or NAME.json.gz, which Perfetto opens" : "";
  };
  AddChecked(app, "-o,--output", store,
             "File to write, in Chrome's format: NAME.json, or NAME.json.gz to compress it. "
             "Without it, the trace goes to standard output.");
}

CLI::Option* AddLength(CLI::App& app, const std::string& name,
                       std::optional<std::chrono::nanoseconds>& target, const std::string& help) {
  const auto store = [&target](const std::string& value) {
    target = ParseDuration(value);
    const bool is_length = target && target->count() != 0 && *target <= kMostTraceLength;
    return is_length ? "" : "write seconds, or a duration like 1m30s; an hour at most";
  };
  return AddChecked(app, name, store, help);
}

void AddFiles(CLI::App& app, TraceRequest& request) {
  app.add_option("FILE", request.files, "Traces in Chrome's format.")->required();
}

constexpr std::array kEnds{SIGINT, SIGTERM};

bool IsStillWanted() {
  sigset_t pending;
  sigpending(&pending);
  return std::ranges::none_of(kEnds,
                              [&](int signal) { return sigismember(&pending, signal) == 1; });
}

// SIGINT and SIGTERM end a recording, and what it has is written.
collector::NodeTrace TraceOf(const TraceRequest& request, collector::Collector& collector) {
  if (!request.length) return collector.Recent(request.last.value_or(kDefaultTraceLength));
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : kEnds) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return collector.Record(*request.length, IsStillWanted);
}

int PrintResult(const TraceResult& result) {
  if (!result.fault.empty()) return Fail(kRuntimeFailure, result.fault);
  std::fputs(result.notes.c_str(), stderr);
  return Print(result.text);
}

int Trace(const TraceRequest& request, const Options& options) {
  collector::Collector collector = CollectorOf(options);
  collector::NodeTrace trace = TraceOf(request, collector);
  trace.node = NodeName();
  if (trace.processes.empty())
    return Fail(kRuntimeFailure, "no process has a segment here; see nccl-exporter doctor");
  return PrintResult(WriteTrace(request, std::move(trace)));
}

}  // namespace

void AddTraceFlags(CLI::App& app, TraceRequest& request) {
  CLI::Option* const last =
      AddLength(app, "--last", request.last,
                "Length of time before now, as far as the rings hold it. 30s without a value.");
  AddLength(app, "--seconds", request.length,
            "Record all operations from now on, for so long or until Ctrl-C.")
      ->excludes(last);
  app.add_option("--job", request.wanted,
                 "Slurm id of the job, its namespace, or the beginning of its pods' names. May be "
                 "given several times: all must be true.")
      ->allow_extra_args(false);
  AddOutput(app, request);
  app.require_subcommand(0, 1);
}

Command TraceCommand() {
  const auto request = std::make_shared<TraceRequest>();
  return {.name = "trace",
          .help =
              "Write operations of the ranks of this node as a trace for Perfetto, from "
              "--segment.dir. The job is not touched.",
          .daemon_flags = {"--segment.dir"},
          .add_flags = [request](CLI::App& app) { AddTraceFlags(app, *request); },
          .run = [request](const Options& options) { return Trace(*request, options); }};
}

Command TraceMergeCommand() {
  const auto request = std::make_shared<TraceRequest>();
  return {
      .name = "trace merge",
      .help = "Put traces of several nodes on one time axis, and print how closely it is known.",
      .add_flags =
          [request](CLI::App& app) {
            AddFiles(app, *request);
            AddOutput(app, *request);
          },
      .run = [request](const Options&) { return PrintResult(MergeTraces(*request)); }};
}

Command TraceSummaryCommand() {
  const auto request = std::make_shared<TraceRequest>();
  return {.name = "trace summary",
          .help = "Print what time went to in traces, who waited for whom, and what they lack.",
          .add_flags = [request](CLI::App& app) { AddFiles(app, *request); },
          .run = [request](const Options&) { return PrintResult(SummarizeTraces(*request)); }};
}

}  // namespace nccl_exporter::exporter
