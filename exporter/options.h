// SPDX-License-Identifier: Apache-2.0
// The command line of nccl-exporter: one table of flags, and what a command line means.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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
    {"--segment.dir", "/run/nccl-exporter, /dev/shm/nccl-exporter",
     "Directory in which the plugin leaves its segments. May be given several times; need not exist yet."},
    {"--segment.retention", "5m",
     "How long the metrics of an ended process or communicator are still served: seconds, or a duration like 1h30m."},
    {"--log.level", "info", "Least severe message to log: debug, info, warn or error."},
    {"--log.format", "logfmt", "Format of the log, on standard error: logfmt or json."},
}};

enum class Command : uint8_t {
  kServe,
  kDump,      // `dump SEGMENT`
  kInFlight,  // `inflight`
  kTop,       // `top`
  kPrint      // --help, --version, `options`: write `text` to standard output
};

enum class LogLevel : uint8_t { kDebug, kInfo, kWarn, kError };
enum class LogFormat : uint8_t { kLogfmt, kJson };

struct Options {
  Command command = Command::kServe;
  std::string text;           // of kPrint
  std::string dump_segment;   // of kDump
  bool is_once = false;       // of kTop
  std::string sort = "rank";  // of kTop: one of kTopSorts

  std::vector<std::string> listen_addresses;
  std::string telemetry_path;
  std::string web_config_file;  // empty: none
  bool uses_systemd_socket = false;
  std::vector<std::string> segment_dirs;
  std::chrono::nanoseconds retention{};
  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kLogfmt;
};

// What the command line asks for, or in `error` the one line that says what is wrong with it (then the result means
// nothing).
Options ParseOptions(int argc, const char* const* argv, std::string& error);

// The table of flags as Markdown, as it stands in the README.
std::string OptionsAsMarkdown();

}  // namespace nccl_exporter
