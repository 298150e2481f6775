// SPDX-License-Identifier: Apache-2.0
// `nccl-exporter wait`: its flags, clock and output.
#include <CLI/CLI.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "exporter/cli/client/http_config.h"
#include "exporter/cli/commands.h"
#include "exporter/cli/waiting.h"
#include "exporter/text/duration_text.h"

namespace nccl_exporter::exporter {
namespace {

int Wait(const WaitRequest& request) {
  const auto now = [] {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch());
  };
  const WaitEnd end = Waiting(
      request, DaemonAt(request.daemon, std::nullopt, ReadHttpConfig(request.http_config_file)),
      {.now = now,
       .sleep = [](std::chrono::nanoseconds pause) { std::this_thread::sleep_for(pause); },
       .warn = [](const std::string& text) { Fail(kSuccess, text); }});
  if (end.finding.empty()) return Fail(end.exit_code, end.reason);
  const int printed = Print(end.finding);
  return printed == kSuccess ? end.exit_code : printed;
}

}  // namespace

void AddWaitFlags(CLI::App& app, WaitRequest& request) {
  std::map<std::string, Awaited> names;
  for (const CodeRow<Awaited>& row : kAwaited) names.emplace(row.name, row.id);
  app.add_option("--for", request.awaited,
                 "Findings to wait for, with commas: hang (exit code 10), killed (11), late (12).")
      ->delimiter(',')
      ->transform(CLI::CheckedTransformer(names).description("hang,killed,late"))
      ->default_str("hang,killed");
  AddLabelFlags(app, request.wanted);
  const auto store_timeout = [&request](const std::string& value) {
    request.timeout = ParseDuration(value);
    return request.timeout ? "" : "write seconds, or a duration like 1h30m";
  };
  AddChecked(app, "--timeout", store_timeout,
             "Longest wait: seconds, or a duration like 24h. Its exit code is 124. Without it, "
             "none.");
  AddAnyDaemonFlag(
      app, request.daemon,
      " Unless it names another, the socket is asked first: " + std::string(kFindingsSocket));
  AddHttpConfigFlag(app, request.http_config_file);
}

Command WaitCommand() {
  const auto request = std::make_shared<WaitRequest>();
  return {.name = "wait",
          .help = "Wait for a finding of the daemon, and print it as JSON: for scripts.",
          .add_flags = [request](CLI::App& app) { AddWaitFlags(app, *request); },
          .run = [request](const Options&) { return Wait(*request); }};
}

}  // namespace nccl_exporter::exporter
