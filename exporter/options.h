// SPDX-License-Identifier: Apache-2.0
// The command line of nccl-exporter: one table of flags, and what a command line means.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/catalogue/metric_switches.h"
#include "exporter/commands/synthetic_node.h"

namespace nccl_exporter {

struct OptionRow {
  std::string_view name;
  std::string_view default_value;
  std::string_view help;
};

enum class Option : uint8_t {
  kListenAddress,
  kTelemetryPath,
  kWebConfigFile,
  kSystemdSocket,
  kSegmentDir,
  kSegmentRetention,
  kMetricsDisable,
  kMetricsDropLabel,
  kMetricsDurationBounds,
  kMetricsBandwidthBounds,
  kMetricsNativeSchema,
  kLogLevel,
  kLogFormat,
  kCount
};

inline constexpr std::array<OptionRow, static_cast<size_t>(Option::kCount)> kOptions{{
    {"--web.listen-address", ":9828",
     "Address to listen at, host:port, [IPv6]:port, or :port for all addresses. May be given several times."},
    {"--web.telemetry-path", "/metrics", "Path of the metrics."},
    {"--web.config.file", "",
     "File with TLS, passwords and headers, in the format of the Prometheus exporter-toolkit. Read again when it "
     "changes."},
    {"--web.systemd-socket", "", "Listen at the sockets that systemd passes, instead of --web.listen-address."},
    {"--segment.dir", "/run/nccl-exporter, /dev/shm/nccl-exporter, /dev/shm/nccl-exporter-*",
     "Directory in which the plugin leaves its segments. May be given several times; need not exist yet. One that ends "
     "with -* stands for a private directory of each user, with the user's number in the place of *."},
    {"--segment.retention", "5m",
     "How long the metrics of an ended process or communicator are still served: seconds, or a duration like 1h30m."},
    {"--metrics.disable", "",
     "Leave out a family: its name, the beginning of names and *, or `histograms`. May be given several times."},
    {"--metrics.drop-label", "",
     "Leave out a label; series that are the same without it are merged. May be given several times."},
    {"--metrics.duration-bounds", "0.000015,0.00006,0.00024,0.001,0.004,0.016,0.0625,0.25,1,4",
     "Bounds of the classic buckets of durations, in seconds: each moves to the nearest bound of the segment, which "
     "are "
     "9 % apart. At most 16, or none."},
    {"--metrics.bandwidth-bounds", "134e6,537e6,2.15e9,8.6e9,17e9,34e9,69e9,137e9,275e9,1.1e12",
     "The same of bus bandwidth, in bytes per second."},
    {"--metrics.native-schema", "3",
     "Resolution of native histograms: schema 3 (buckets 9 % wide), 2, 1, 0 (a factor 2), or off."},
    {"--log.level", "info", "Least severe message to log: debug, info, warn or error."},
    {"--log.format", "logfmt", "Format of the log, on standard error: logfmt or json."},
}};

enum class Command : uint8_t {
  kServe,
  kDump,         // `dump SEGMENT`
  kInFlight,     // `inflight`
  kTop,          // `top`
  kCardinality,  // `cardinality`
  kPrint         // --help, --version, `options`: write `text` to standard output
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
  MetricSwitches metrics;
  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kLogfmt;
};

// What the command line asks for, or in `error` the one line that says what is wrong with it (then the result means
// nothing).
Options ParseOptions(int argc, const char* const* argv, std::string& error);

// The table of flags as Markdown, as it stands in the README.
std::string OptionsAsMarkdown();

}  // namespace nccl_exporter
