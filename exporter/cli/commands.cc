// SPDX-License-Identifier: Apache-2.0
// The short commands, `inflight` and `doctor`, and what all commands use.
#include "exporter/cli/commands.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <utility>

#include "collector/collector.h"
#include "exporter/cli/daemon_judgement.h"
#include "exporter/cli/doctor/checks.h"
#include "exporter/cli/node_access.h"
#include "exporter/findings/in_flight_table.h"
#include "exporter/findings/node_judge.h"

namespace nccl_exporter::exporter {
int Fail(int exit_code, const std::string& message) {
  std::fprintf(stderr, "nccl-exporter: %s\n", message.c_str());
  return exit_code;
}

int Print(const std::string& text) {
  const bool is_written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  return is_written ? kSuccess : Fail(kRuntimeFailure, "cannot write to standard output");
}

CLI::Option* AddChecked(CLI::App& app, const std::string& flag,
                        std::function<std::string(const std::string& value)> store,
                        const std::string& help) {
  const auto take = [flag, store = std::move(store)](const std::string& value) {
    const std::string fault = store(value);
    if (!fault.empty())
      throw CLI::ValidationError("invalid value '" + value + "' of " + flag + ": " + fault);
  };
  return app.add_option_function<std::string>(flag, take, help);
}

void AddAnyDaemonFlag(CLI::App& app, std::string& daemon, const std::string& help) {
  const auto store = [&daemon](const std::string& value) {
    std::string fault;
    ParseAnyDaemonAddress(value, fault);
    daemon = value;
    return fault;
  };
  AddChecked(app, "--daemon", store,
             "Address of the daemon: http[s]://HOST[:PORT][/PREFIX] or unix:/PATH." + help)
      ->default_str(daemon);
}

void AddDaemonFlag(CLI::App& app, std::string& daemon) {
  const auto store = [&daemon](const std::string& value) {
    std::string fault;
    if (value != kNoDaemon) ParseDaemonAddress(value, fault);
    daemon = value;
    return fault;
  };
  AddChecked(app, "--daemon", store,
             "Address of this node's daemon, whose findings are shown: http://HOST:PORT, "
             "unix:/PATH, or none for findings of the command itself. TLS and passwords are not "
             "supported. Unless it names another, the daemon's socket is asked first: " +
                 std::string(kFindingsSocket))
      ->default_str(std::string(kDefaultDaemon));
}

Command InFlightCommand() {
  struct Request {
    bool is_json = false;
    std::string daemon{kDefaultDaemon};
  };
  const auto request = std::make_shared<Request>();
  return {.name = "inflight",
          .help = "Print findings and which rank is in which collective, from --segment.dir.",
          .daemon_flags = {"--segment.dir", "--findings.config"},
          .add_flags =
              [request](CLI::App& app) {
                app.add_flag("--json", request->is_json, "Print one JSON object.");
                AddDaemonFlag(app, request->daemon);
              },
          .run =
              [request](const Options& options) {
                const Thresholds thresholds = ThresholdsOf(options);
                const auto node = CollectorOf(options).Snapshot();
                const int64_t now_ns = node->taken_realtime_ns;
                const ShownJudgement shown =
                    Shown(DaemonAt(request->daemon, options.segment_dirs)(),
                          NodeJudge(thresholds).Judge(*node), now_ns);
                return PrintNode(options, *node,
                                 request->is_json ? NodeText(options, *node, {}, shown)
                                                  : shown.Line(now_ns) + '\n' +
                                                        InFlightText(*node, shown.judgement));
              }};
}

void AddHttpConfigFlag(CLI::App& app, std::string& file) {
  app.add_option("--http.config.file", file,
                 "File with a login, TLS and headers, as promtool takes it: basic_auth, "
                 "authorization, tls_config, http_headers.");
}

CLI::Option* AddLabelFlag(CLI::App& app, const std::string& name, const char* label,
                          const std::string& help, std::map<std::string, std::string>& wanted) {
  return app.add_option_function<std::string>(
      name, [&wanted, label](const std::string& value) { wanted[label] = value; },
      help + " of the job; '': it has none.");
}

void AddLabelFlags(CLI::App& app, std::map<std::string, std::string>& wanted) {
  AddLabelFlag(app, "--job", "nccl_job", "Name, as Slurm's id,", wanted);
  AddLabelFlag(app, "--namespace", "namespace", "Namespace", wanted);
  AddLabelFlag(app, "--uid", "uid", "Number of the owner", wanted)
      ->check(CLI::Range(uint32_t{0}, std::numeric_limits<uint32_t>::max()));
}

Command DoctorCommand() {
  constexpr int kMostPid = 1 << 22;  // the kernel's own limit (PID_MAX_LIMIT)
  const auto pid = std::make_shared<uint64_t>(0);
  return {
      .name = "doctor",
      .help = "Check directories, plugin, NCCL, environment and daemon, and say what to change.",
      .daemon_flags = {"--web.listen-address", "--segment.dir"},
      .add_flags =
          [pid](CLI::App& app) {
            app.add_option("--pid", *pid, "Process of a training job to check as well.")
                ->check(CLI::Range(1, kMostPid));
          },
      .run =
          [pid](const Options& options) {
            const std::vector<Check> checks = Examine({.segment_dirs = options.segment_dirs,
                                                       .listen_addresses = options.listen_addresses,
                                                       .pid = *pid},
                                                      *CollectorOf(options).Snapshot());
            std::string text;
            for (const Check& check : checks) text += CheckLine(check) + '\n';
            const int printed = Print(text);
            const bool fails = std::ranges::count(checks, Verdict::kFail, &Check::verdict) != 0;
            return fails ? kRuntimeFailure : printed;
          }};
}

}  // namespace nccl_exporter::exporter
