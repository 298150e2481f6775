// SPDX-License-Identifier: Apache-2.0
// Options, the values of the daemon's flags, and the table of these flags. For the first thread,
// before others start.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/series/metric_filter.h"

namespace CLI {
class App;
}

namespace nccl_exporter::exporter {

enum class LogLevel : uint8_t { kDebug = 1, kInfo, kWarn, kError };  // as spdlog numbers them
enum class LogFormat : uint8_t { kLogfmt, kJson };

struct Options {
  std::vector<std::string> listen_addresses;
  std::vector<std::string> health_addresses;  // of health and readiness only; empty: none
  std::vector<std::string> allowed_hosts;     // of requests; empty: any
  std::string telemetry_path;
  std::string web_config_file;  // empty: none
  bool serves_traces = false;
  std::vector<std::string> segment_dirs;
  std::chrono::nanoseconds retention{};
  std::string extension_socket;  // empty: none
  std::string label_directory;  // empty: none
  std::string findings_config;  // file of thresholds; empty: the shipped ones
  double findings_time_scale = 1;
  std::string findings_socket;  // empty: none
  MetricFilter metrics;
  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kLogfmt;
};

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
  bool is_for_tests = false;  // no help, manual or document shows it
};

extern const std::array<OptionRow, 21> kOptions;

// Adds a flag to the program or to a command. The values that are given there are appended to
// `values`, which outlives the app.
void AddFlag(const OptionRow& row, CLI::App& app, std::vector<std::string>& values);

// Stores the values of a flag, or its default where there are none. Returns the fault of a value in
// one line, or an empty text.
std::string StoreFlag(const OptionRow& row, std::vector<std::string> values, Options& options);

}  // namespace nccl_exporter::exporter
