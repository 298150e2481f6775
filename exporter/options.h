// SPDX-License-Identifier: Apache-2.0
// What a command line of nccl-exporter means.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/catalogue/metric_filter.h"
#include "exporter/commands/synthetic_node.h"

namespace nccl_exporter {

enum class Command : uint8_t {
  kServe,
  kDump,         // `dump SEGMENT`
  kInFlight,     // `inflight`
  kTop,          // `top`
  kCardinality,  // `cardinality`
  kCatalogue,    // `catalogue`
  kPrint         // --help, --version: write `text` to standard output
};

enum class LogLevel : uint8_t { kDebug, kInfo, kWarn, kError };
enum class LogFormat : uint8_t { kLogfmt, kJson };

struct Options {
  Command command = Command::kServe;
  std::string text;                // of kPrint
  std::string dump_segment;        // of kDump
  bool is_once = false;            // of kTop
  std::string sort = "rank";       // of kTop: one of kTopSorts
  std::optional<NodeShape> shape;  // of kCardinality; without one, what is in segment_dirs

  std::vector<std::string> listen_addresses;
  std::string telemetry_path;
  std::string web_config_file;  // empty: none
  bool uses_systemd_socket = false;
  std::vector<std::string> segment_dirs;
  std::chrono::nanoseconds retention{};
  MetricFilter metrics;
  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kLogfmt;
};

// What the command line asks for, or in `error` the one line that says what is wrong with it (then the result means
// nothing).
Options ParseOptions(int argc, const char* const* argv, std::string& error);

}  // namespace nccl_exporter
