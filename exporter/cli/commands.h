// SPDX-License-Identifier: Apache-2.0
// Command, a command of nccl-exporter: its name, help, flags and run. For the first thread.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/cli/options.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace nccl_exporter::exporter {

struct ReportRequest;
struct TraceRequest;
struct WaitRequest;

inline constexpr int kSuccess = 0, kRuntimeFailure = 1, kBadUsage = 2;  // exit codes

struct Command {
  std::string name;  // as it is typed: "trace merge" is a part of "trace"
  std::string help;
  std::vector<std::string_view> daemon_flags = {};  // flags of the daemon that it takes as well
  std::function<void(CLI::App&)> add_flags;         // its own
  std::function<int(const Options&)> run;           // returns the exit code
};

Command TopCommand();
Command InFlightCommand();
Command DoctorCommand();
Command ReportCommand();
Command ReportDiffCommand();
Command ReportCostsCommand();
Command WaitCommand();
Command OtlpCommand();
Command TraceCommand();
Command TraceMergeCommand();
Command TraceSummaryCommand();
Command ExtensionRunCommand();
Command ExtensionCheckCommand();
Command ExtensionListCommand();

// Flags of commands. The requests outlive the app.
void AddReportFlags(CLI::App& app, ReportRequest& request);
void AddTraceFlags(CLI::App& app, TraceRequest& request);
void AddWaitFlags(CLI::App& app, WaitRequest& request);
// --job, --namespace and --uid, into labels of series, for commands about a job.
void AddLabelFlags(CLI::App& app, std::map<std::string, std::string>& wanted);
CLI::Option* AddLabelFlag(CLI::App& app, const std::string& name, const char* label,
                          const std::string& help, std::map<std::string, std::string>& wanted);
void AddHttpConfigFlag(CLI::App& app, std::string& file);
// --daemon, for commands that ask a daemon on any node; `help` follows its own.
void AddAnyDaemonFlag(CLI::App& app, std::string& daemon, const std::string& help = "");
// --daemon, for commands that show findings.
void AddDaemonFlag(CLI::App& app, std::string& daemon);

// Adds a flag whose value `store` takes. That returns the fault of the value, or an empty text.
CLI::Option* AddChecked(CLI::App& app, const std::string& flag,
                        std::function<std::string(const std::string& value)> store,
                        const std::string& help);

// Prints one line to standard error, and returns the exit code.
int Fail(int exit_code, const std::string& message);
// Prints to standard output, and returns the exit code.
int Print(const std::string& text);

}  // namespace nccl_exporter::exporter
