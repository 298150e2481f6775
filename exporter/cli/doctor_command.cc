// SPDX-License-Identifier: Apache-2.0
// `nccl-exporter doctor`: why a job does not appear.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "exporter/cli/commands.h"
#include "exporter/cli/doctor/checks.h"
#include "exporter/cli/node_access.h"

namespace nccl_exporter::exporter {

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
