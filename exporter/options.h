// SPDX-License-Identifier: Apache-2.0
// Options, the values of a command line of nccl-exporter, and the table of its flags. For the first
// thread, before others start.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/cli/client/daemon_judgement.h"
#include "exporter/cli/job/job_command.h"
#include "exporter/series/metric_filter.h"
#include "exporter/trace/trace_command.h"

namespace nccl_exporter::exporter {

enum class Command : uint8_t {
  kServe,
  kDump,          // `dump SEGMENT`
  kInFlight,      // `inflight`
  kTop,           // `top`
  kDoctor,        // `doctor`
  kJob,           // `job`
  kTrace,         // `trace`
  kTraceMerge,    // `trace merge`
  kTraceSummary,  // `trace summary`
  kPrint          // --help, --version, help, version: write `text` to standard output
};

enum class LogLevel : uint8_t { kDebug, kInfo, kWarn, kError };
enum class LogFormat : uint8_t { kLogfmt, kJson };

struct Options {
  Command command = Command::kServe;
  std::string text;           // of kPrint
  std::string dump_segment;   // of kDump
  bool is_once = false;       // of kTop
  std::string sort = "rank";  // of kTop: one of kTopSorts
  bool is_json = false;       // of kTop and kInFlight
  JobRequest job;             // of kJob
  TraceRequest trace;         // of kTrace, kTraceMerge and kTraceSummary
  uint64_t doctor_pid = 0;    // of kDoctor; 0: no process is examined
  // Address of the daemon, or kNoDaemon; for kTop and kInFlight.
  std::string daemon{kDefaultDaemon};

  std::vector<std::string> listen_addresses;
  std::vector<std::string> health_addresses;  // of health and readiness only; empty: none
  std::vector<std::string> allowed_hosts;     // of requests; empty: any
  std::string telemetry_path;
  std::string web_config_file;  // empty: none
  bool uses_systemd_socket = false;
  bool serves_traces = false;
  std::vector<std::string> segment_dirs;
  std::chrono::nanoseconds retention{};
  std::string findings_config;  // file of thresholds; empty: the shipped ones
  double findings_time_scale = 1;
  std::string findings_socket;  // empty: none
  MetricFilter metrics;
  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kLogfmt;
};

// The values of a command line. If it is wrong, `error` is one line with the reason, and the result
// has no meaning. `commit` is part of the version; empty where a build does not say it.
Options ParseOptions(int argc, const char* const* argv, std::string& error,
                     std::string_view commit = {});

enum class FlagTakes : uint8_t {
  kValue,
  kValues,  // given several times; the default is a list with commas
  kNothing,
};

// A flag: its name, what it takes, and where its value goes (option_table.cc).
struct OptionRow {
  std::string_view name;
  std::string_view default_value;
  std::string_view help;
  FlagTakes takes;
  // False if the flag cannot have `value`. Then `complaint`, which is the help, may be replaced by
  // the reason.
  bool (*store)(const std::string& value, Options& options, std::string& complaint);
  // Commands that take it, besides the daemon.
  std::span<const Command> commands = {};
  bool is_for_tests = false;  // no help, manual or document shows it
};

extern const std::array<OptionRow, 21> kOptions;

}  // namespace nccl_exporter::exporter
