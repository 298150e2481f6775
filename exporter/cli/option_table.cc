// SPDX-License-Identifier: Apache-2.0
// kOptions, one row per flag, and the functions that store values.
#include <arpa/inet.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "exporter/cli/options.h"
#include "exporter/text/duration_text.h"
#include "exporter/text/number_in.h"
#include "exporter/web/web_paths.h"

namespace nccl_exporter::exporter {
namespace {

// Why it is not host:port with a name, an IPv4 address or an IPv6 address in brackets, or :port;
// empty if it is.
std::string FaultOfListenAddress(std::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || address.ends_with(']'))
    return "it has no port; write host:port, [IPv6]:port or :port";
  const std::string_view host = address.substr(0, colon), port = address.substr(colon + 1);
  if (!NumberIn<uint16_t>(port))
    return "the port '" + std::string(port) + "' is no number of 0 to 65535";
  if (host.starts_with('[') && host.ends_with(']')) {
    in6_addr parsed{};
    const std::string inner(host.substr(1, host.size() - 2));
    // A link-local address has a zone: fe80::1%eth0.
    const size_t zone = std::min(inner.find('%'), inner.size());
    const bool has_zone = zone + 1 < inner.size() || zone == inner.size();
    return has_zone && inet_pton(AF_INET6, inner.substr(0, zone).c_str(), &parsed) == 1
               ? ""
               : "'" + inner + "' is no IPv6 address";
  }
  if (address.find("://") != std::string_view::npos) return "write host:port, without a scheme";
  if (host.find(':') != std::string_view::npos)
    return "an IPv6 address needs brackets; write [IPv6]:port";
  const bool is_host = std::ranges::all_of(host, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '-';
  });
  return is_host ? "" : "'" + std::string(host) + "' is neither a name nor an IPv4 address";
}

// A path that clients send unchanged, and that is not the path of another page.
bool IsTelemetryPath(std::string_view path) {
  const bool is_plain = std::ranges::all_of(path, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("/-_.~").find(c) != std::string_view::npos;
  });
  const bool has_dot_segment =
      path.find("/.") != std::string_view::npos || path.find("//") != std::string_view::npos;
  return path.starts_with('/') && is_plain && !has_dot_segment && !IsWebPath(path);
}

bool IsAnyText(std::string_view) { return true; }

bool IsNotEmpty(std::string_view text) { return !text.empty(); }

constexpr std::array<std::pair<std::string_view, LogLevel>, 4> kLogLevels{
    {{"debug", LogLevel::kDebug},
     {"info", LogLevel::kInfo},
     {"warn", LogLevel::kWarn},
     {"error", LogLevel::kError}}};
constexpr std::array<std::pair<std::string_view, LogFormat>, 2> kLogFormats{
    {{"logfmt", LogFormat::kLogfmt}, {"json", LogFormat::kJson}}};

// The targets of rows.

// A text, or a list of texts to which it is added.
template <auto kTarget, bool (*kIsValue)(std::string_view)>
bool StoreChecked(const std::string& value, Options& options, std::string&) {
  if (!kIsValue(value)) return false;
  auto& target = options.*kTarget;
  if constexpr (std::is_same_v<decltype(target), std::string&>) {
    target = value;
  } else {
    target.push_back(value);
  }
  return true;
}

template <auto kTarget>
bool StoreAddress(const std::string& value, Options& options, std::string& complaint) {
  complaint = FaultOfListenAddress(value);
  if (complaint.empty()) (options.*kTarget).push_back(value);
  return complaint.empty();
}

bool ServeTraces(const std::string&, Options& options, std::string&) {
  options.serves_traces = true;
  return true;
}

template <auto kTarget>
bool StoreDuration(const std::string& value, Options& options, std::string&) {
  const std::optional<std::chrono::nanoseconds> duration = ParseDuration(value);
  if (duration) options.*kTarget = *duration;
  return duration.has_value();
}

bool StoreTimeScale(const std::string& value, Options& options, std::string&) {
  constexpr double kMost = 1000;  // more would let steps of the history be shorter than a snapshot
  const std::optional<double> scale = NumberIn<double>(value);
  if (!scale || !(*scale >= 1 && *scale <= kMost)) return false;
  options.findings_time_scale = *scale;
  return true;
}

template <auto kTarget, const auto& kNames>
bool StoreNamed(const std::string& value, Options& options, std::string&) {
  for (const auto& [name, named] : kNames) {
    if (value == name) return options.*kTarget = named, true;
  }
  return false;
}

template <auto kChange>
bool SwitchMetrics(const std::string&, Options& options, std::string&) {
  (options.metrics.*kChange)();
  return true;
}

// A change of MetricFilter, which returns what is wrong with the value.
template <auto kChange>
bool ChangeMetrics(const std::string& value, Options& options, std::string& complaint) {
  complaint = (options.metrics.*kChange)(value);
  return complaint.empty();
}

std::vector<std::string> DefaultsOf(const OptionRow& row) {
  if (row.takes != FlagTakes::kValues) return {std::string(row.default_value)};
  std::vector<std::string> parts;
  for (const std::string& part : CLI::detail::split(std::string(row.default_value), ','))
    parts.push_back(CLI::detail::trim_copy(part));
  return parts;
}

}  // namespace

constexpr std::array<OptionRow, 21> kOptions{{
    {"--web.listen-address", ":9828",
     "Address to listen at, host:port, [IPv6]:port, or :port for all addresses. May be given "
     "several times.",
     FlagTakes::kValues, StoreAddress<&Options::listen_addresses>},
    {"--web.health-address", "",
     "Further address that answers /-/healthy and /-/ready only, without TLS and without a "
     "password, for probes. May be given several times.",
     FlagTakes::kValues, StoreAddress<&Options::health_addresses>},
    {"--web.allowed-host", "",
     "Host that requests may name, without a port. May be given several times. Without it, any: a "
     "web site in a browser that reaches the daemon can then read it by a name of its own.",
     FlagTakes::kValues, StoreChecked<&Options::allowed_hosts, IsNotEmpty>},
    {"--web.telemetry-path", "/metrics", "Path of the metrics.", FlagTakes::kValue,
     StoreChecked<&Options::telemetry_path, IsTelemetryPath>},
    {"--web.config.file", "",
     "File with TLS and passwords, in the format of the Prometheus exporter-toolkit. Read again "
     "when it changes.",
     FlagTakes::kValue, StoreChecked<&Options::web_config_file, IsAnyText>},
    {"--web.enable-debug-trace", "",
     "Answer /debug/trace?last=30s with the latest operations of all ranks, as a trace for "
     "Perfetto.",
     FlagTakes::kNothing, ServeTraces},
    {"--segment.dir", "/run/nccl-exporter, /dev/shm/nccl-exporter, /dev/shm/nccl-exporter-*",
     "Directory of the plugin's segments. May be given several times; need not exist yet. A path "
     "that ends with -* means one private directory per user, with the user's number in place of "
     "*.",
     FlagTakes::kValues, StoreChecked<&Options::segment_dirs, IsNotEmpty>},
    {"--segment.retention", "5m",
     "How long the metrics of an ended process or communicator are still served: seconds, or a "
     "duration like 1h30m.",
     FlagTakes::kValue, StoreDuration<&Options::retention>},
    {"--extension.socket", "",
     "Unix socket at which nccl-exporter extension run serves the families of extensions.",
     FlagTakes::kValue, StoreChecked<&Options::extension_socket, IsNotEmpty>},
    {"--labels.dir", "",
     "Directory of files with labels of the site for jobs, pods, users, GPUs or nodes. Its files "
     "*.json are read when they change.",
     FlagTakes::kValue, StoreChecked<&Options::label_directory, IsNotEmpty>},
    {"--findings.config", "",
     "File of thresholds of the findings, as generate-rules writes it beside the rules. Without "
     "it, the shipped ones.",
     FlagTakes::kValue, StoreChecked<&Options::findings_config, IsAnyText>},
    {"--findings.time-scale", "1",
     "Divides all durations of the findings, the history's steps as well, by a number of 1 to "
     "1000. For tests with rules of generate-rules --time-scale.",
     FlagTakes::kValue, StoreTimeScale, true},
    {"--findings.socket", "/run/nccl-exporter-daemon/findings.sock",
     "Unix socket at which top and inflight of this node get the findings, without TLS and without "
     "a password. Served if its directory is there. Empty: none.",
     FlagTakes::kValue, StoreChecked<&Options::findings_socket, IsAnyText>},
    {"--metrics.disable", "",
     "Leave out families: a name, the beginning of names followed by *, or `histograms`. May be "
     "given several times.",
     FlagTakes::kValues, ChangeMetrics<&MetricFilter::Disable>},
    {"--metrics.drop-label", "",
     "Leave out a label; series that differ only in this label are merged. May be given several "
     "times.",
     FlagTakes::kValues, ChangeMetrics<&MetricFilter::DropLabel>},
    {"--metrics.classic-buckets", "on",
     "Classic buckets of the histograms, ten bounds each: on or off.", FlagTakes::kValue,
     ChangeMetrics<&MetricFilter::SetClassicBuckets>},
    {"--metrics.native-schema", "3",
     "Resolution of native histograms: schema 3 (buckets 9 % wide), 2, 1, 0 (a factor 2), or off.",
     FlagTakes::kValue, ChangeMetrics<&MetricFilter::SetNativeSchema>},
    {"--metrics.duration-by-size", "",
     "Histograms of durations have the label size. One series more for each size class that a "
     "communicator uses.",
     FlagTakes::kNothing, SwitchMetrics<&MetricFilter::SplitDurations>},
    {"--metrics.labels-everywhere", "",
     "Labels of NCCL_EXPORTER_LABELS are on every series of their job, and not only on "
     "nccl_rank_info.",
     FlagTakes::kNothing, SwitchMetrics<&MetricFilter::PutUserLabelsEverywhere>},
    {"--log.level", "info", "Least severe message to log: debug, info, warn or error.",
     FlagTakes::kValue, StoreNamed<&Options::log_level, kLogLevels>},
    {"--log.format", "logfmt", "Format of the log, on standard error: logfmt or json.",
     FlagTakes::kValue, StoreNamed<&Options::log_format, kLogFormats>},
}};

void AddFlag(const OptionRow& row, CLI::App& app, std::vector<std::string>& values) {
  const std::string name(row.name), help(row.help);
  if (row.takes == FlagTakes::kNothing) {
    app.add_flag_callback(
        name, [&values] { values = {"on"}; }, help);
    return;
  }
  const auto append = [&values](const std::vector<std::string>& given) {
    values.insert(values.end(), given.begin(), given.end());
  };
  CLI::Option* const flag = app.add_option_function<std::vector<std::string>>(name, append, help);
  flag->default_str(std::string(row.default_value))->allow_extra_args(false);
  if (row.takes == FlagTakes::kValue) flag->expected(1);
  if (row.is_for_tests) flag->group("");
}

std::string StoreFlag(const OptionRow& row, std::vector<std::string> values, Options& options) {
  if (values.empty() && !row.default_value.empty()) values = DefaultsOf(row);
  for (const std::string& value : values) {
    std::string complaint(row.help);
    if (row.store(value, options, complaint)) continue;
    return "invalid value '" + value + "' of " + std::string(row.name) + ": " + complaint;
  }
  return "";
}

}  // namespace nccl_exporter::exporter
