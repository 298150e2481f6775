// SPDX-License-Identifier: Apache-2.0
// `nccl-exporter inflight`: findings, and which rank is in which collective.
#include <CLI/CLI.hpp>
#include <memory>

#include "exporter/cli/client/daemon_judgement.h"
#include "exporter/cli/commands.h"
#include "exporter/cli/node_access.h"
#include "exporter/findings/in_flight_table.h"
#include "exporter/findings/node_judge.h"

namespace nccl_exporter::exporter {

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
             "supported. Without it, the daemon's socket is asked first: " +
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

}  // namespace nccl_exporter::exporter
