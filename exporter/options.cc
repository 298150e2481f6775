// SPDX-License-Identifier: Apache-2.0
// The table of flags fed to CLI11, and the checks of their values.
#include "exporter/options.h"

#include <arpa/inet.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>
#include <utility>

#include "exporter/commands/top_screen.h"
#include "exporter/duration_text.h"
#include "exporter/ui/web_paths.h"
#include "exporter/version.h"

namespace nccl_exporter {
namespace {

// Values as given, each flag's default where it is not.
using Values = std::array<std::vector<std::string>, kOptions.size()>;

// Given without a value: then it is `on`.
constexpr bool IsSwitch(Option option) { return option == Option::kSystemdSocket; }

constexpr bool IsRepeatable(Option option) {
  return option == Option::kListenAddress || option == Option::kSegmentDir || option == Option::kMetricsDisable ||
         option == Option::kMetricsDropLabel;
}

std::vector<std::string> SplitList(std::string_view list) {
  std::vector<std::string> parts;
  for (const std::string& part : CLI::detail::split(std::string(list), ','))
    parts.push_back(CLI::detail::trim_copy(part));
  return parts;
}

bool IsPort(std::string_view text) {
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size();
}

// host:port with a name, an IPv4 address or an IPv6 address in brackets, or :port.
bool IsListenAddress(std::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos) return false;
  const std::string_view host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    in6_addr parsed{};
    const std::string inner(host.substr(1, host.size() - 2));
    return inet_pton(AF_INET6, inner.c_str(), &parsed) == 1 && IsPort(address.substr(colon + 1));
  }
  const bool is_host = std::ranges::all_of(host, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-';
  });
  return is_host && IsPort(address.substr(colon + 1));
}

// A path that clients send as it is written and that hides no page of ours.
bool IsTelemetryPath(std::string_view path) {
  const bool is_plain = std::ranges::all_of(path, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("/-_.~").find(c) != std::string_view::npos;
  });
  const bool has_dot_segment = path.find("/.") != std::string_view::npos || path.find("//") != std::string_view::npos;
  return path.starts_with('/') && is_plain && !has_dot_segment && !IsWebPath(path);
}

template <typename Value, size_t kSize>
std::optional<Value> ByName(const std::array<std::pair<std::string_view, Value>, kSize>& names, std::string_view name) {
  const auto found = std::ranges::find(names, name, &std::pair<std::string_view, Value>::first);
  return found == names.end() ? std::nullopt : std::optional(found->second);
}

constexpr std::array<std::pair<std::string_view, LogLevel>, 4> kLogLevels{
    {{"debug", LogLevel::kDebug}, {"info", LogLevel::kInfo}, {"warn", LogLevel::kWarn}, {"error", LogLevel::kError}}};
constexpr std::array<std::pair<std::string_view, LogFormat>, 2> kLogFormats{
    {{"logfmt", LogFormat::kLogfmt}, {"json", LogFormat::kJson}}};

// Stores a flag's value; false if it is none, with what is wrong with it where that is more than the flag's help says.
bool Store(Option option, const std::string& value, Options& options, std::string& complaint) {
  switch (option) {
    case Option::kListenAddress:
      options.listen_addresses.push_back(value);
      return IsListenAddress(value);
    case Option::kTelemetryPath:
      options.telemetry_path = value;
      return IsTelemetryPath(value);
    case Option::kWebConfigFile:
      options.web_config_file = value;
      return true;
    case Option::kSystemdSocket:
      options.uses_systemd_socket = value == "on";
      return true;
    case Option::kSegmentDir:
      options.segment_dirs.push_back(value);
      return !value.empty();
    case Option::kSegmentRetention:
      options.retention = ParseDuration(value).value_or(std::chrono::nanoseconds(-1));
      return options.retention.count() >= 0;
    case Option::kMetricsDisable:
      complaint = options.metrics.Disable(value);
      return complaint.empty();
    case Option::kMetricsDropLabel:
      complaint = options.metrics.DropLabel(value);
      return complaint.empty();
    case Option::kMetricsDurationBounds:
      complaint = options.metrics.SetDurationBounds(value);
      return complaint.empty();
    case Option::kMetricsBandwidthBounds:
      complaint = options.metrics.SetBandwidthBounds(value);
      return complaint.empty();
    case Option::kMetricsNativeSchema:
      complaint = options.metrics.SetNativeSchema(value);
      return complaint.empty();
    case Option::kLogLevel:
      options.log_level = ByName(kLogLevels, value).value_or(LogLevel::kInfo);
      return ByName(kLogLevels, value).has_value();
    case Option::kLogFormat:
      options.log_format = ByName(kLogFormats, value).value_or(LogFormat::kLogfmt);
      return ByName(kLogFormats, value).has_value();
    case Option::kCount:
      break;
  }
  return false;
}

std::vector<std::string> DefaultsOf(Option option) {
  const std::string_view text = kOptions[static_cast<size_t>(option)].default_value;
  if (text.empty()) return {};
  return IsRepeatable(option) ? SplitList(text) : std::vector{std::string(text)};
}

void StoreAll(const Values& values, Options& options, std::string& error) {
  for (size_t i = 0; i < kOptions.size(); ++i) {
    for (const std::string& value : values[i]) {
      std::string complaint(kOptions[i].help);
      if (Store(static_cast<Option>(i), value, options, complaint)) continue;
      error = "invalid value '" + value + "' of " + std::string(kOptions[i].name) + ": " + complaint;
      return;
    }
  }
}

void AddOptions(CLI::App& app, Values& values) {
  for (size_t i = 0; i < kOptions.size(); ++i) {
    const OptionRow& row = kOptions[i];
    values[i] = DefaultsOf(static_cast<Option>(i));
    if (IsSwitch(static_cast<Option>(i))) {
      app.add_flag_callback(
          std::string(row.name), [&value = values[i]] { value = {"on"}; }, std::string(row.help));
      continue;
    }
    CLI::Option* option = app.add_option(std::string(row.name), values[i], std::string(row.help));
    option->default_str(std::string(row.default_value))->allow_extra_args(false);
    if (!IsRepeatable(static_cast<Option>(i))) option->expected(1);
  }
}

// Flags of `cardinality`; any of them asks for a node of that shape instead of this one.
CLI::App* AddCardinality(CLI::App& app, NodeShape& shape) {
  constexpr int kMostRanks = 64;
  constexpr int kMostCommunicators = 1000;
  CLI::App* command = app.add_subcommand(
      "cardinality",
      "Print the series and bytes of a scrape: of this node, from --segment.dir, or of a node of a shape.");
  command->fallthrough();
  command->add_option("--ranks", shape.ranks, "Ranks on the node.")->check(CLI::Range(1, kMostRanks));
  command->add_option("--communicators", shape.communicators, "Communicators of each rank.")
      ->check(CLI::Range(1, kMostCommunicators));
  command->add_option("--p2p", shape.point_to_point, "Of these, the ones that only send and receive.")
      ->check(CLI::Range(0, kMostCommunicators));
  command->add_option("--collectives", shape.collectives, "Collectives that each of the others uses.")
      ->check(CLI::Range(1, kCollectivesOfShape));
  return command;
}

bool HasFlags(const CLI::App& command) {
  return std::ranges::any_of(command.get_options(), [](const CLI::Option* option) { return option->count() > 0; });
}

// CLI11's messages, which may take several lines, as one.
std::string OneLine(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::ranges::replace(text, '\n', ' ');
  return text;
}

std::vector<std::string> SortNames() { return {kTopSorts.begin(), kTopSorts.end()}; }

}  // namespace

Options ParseOptions(int argc, const char* const* argv, std::string& error) {
  CLI::App app("Serves metrics of the NCCL communicators on this node to Prometheus.", "nccl-exporter");
  Options options;
  Values values;
  AddOptions(app, values);
  app.set_version_flag("--version", "nccl-exporter " + std::string(kVersion), "Print the version and exit.");
  app.set_help_flag("-h,--help", "Print this help and exit.");
  app.require_subcommand(0, 1);
  CLI::App* dump = app.add_subcommand("dump", "Print a segment readably.");
  dump->add_option("SEGMENT", options.dump_segment, "File to print.")->required();
  CLI::App* in_flight = app.add_subcommand("inflight", "Print which rank is in which collective, from --segment.dir.");
  CLI::App* top = app.add_subcommand("top", "Show in a terminal what the ranks do now, from --segment.dir.");
  top->add_flag("--once", options.is_once,
                "Print once, after a second, and exit; so it does where there is no terminal.");
  top->add_option("--sort", options.sort, "Order of the ranks.")
      ->check(CLI::IsMember(SortNames()))
      ->default_str("rank");
  NodeShape shape;
  const CLI::App* cardinality = AddCardinality(app, shape);
  CLI::App* print_options = app.add_subcommand("options", "Print the table of flags as Markdown.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    options.command = Command::kPrint;
    options.text = app.help();
  } catch (const CLI::CallForVersion& version) {
    options.command = Command::kPrint;
    options.text = std::string(version.what()) + '\n';
  } catch (const CLI::ParseError& wrong) {
    error = OneLine(wrong.what());
  }
  if (!error.empty() || options.command == Command::kPrint) return options;
  if (dump->parsed()) options.command = Command::kDump;
  if (in_flight->parsed()) options.command = Command::kInFlight;
  if (top->parsed()) options.command = Command::kTop;
  if (cardinality->parsed()) options.command = Command::kCardinality;
  if (cardinality->parsed() && HasFlags(*cardinality)) options.shape = shape;
  if (print_options->parsed()) {
    options.command = Command::kPrint;
    options.text = OptionsAsMarkdown();
  }
  StoreAll(values, options, error);
  return options;
}

std::string OptionsAsMarkdown() {
  std::string table = "| flag | default | meaning |\n|---|---|---|\n";
  for (const OptionRow& row : kOptions) {
    const std::string value = row.default_value.empty() ? "" : '`' + std::string(row.default_value) + '`';
    table += "| `" + std::string(row.name) + "` | " + value + " | " + std::string(row.help) + " |\n";
  }
  return table;
}

}  // namespace nccl_exporter
