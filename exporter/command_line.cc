// SPDX-License-Identifier: Apache-2.0
#include "exporter/command_line.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "exporter/cli/top_ranks.h"
#include "exporter/manual.h"
#include "exporter/text/duration_text.h"
#include "exporter/text/nearest_name.h"
#include "exporter/text/version.h"

namespace nccl_exporter::exporter {
namespace {

// The kernel's own limit (PID_MAX_LIMIT).
constexpr int kMostPid = 1 << 22;

std::vector<std::string> SplitList(std::string_view list) {
  std::vector<std::string> parts;
  for (const std::string& part : CLI::detail::split(std::string(list), ','))
    parts.push_back(CLI::detail::trim_copy(part));
  return parts;
}

std::vector<std::string> DefaultsOf(const OptionRow& row) {
  if (row.default_value.empty()) return {};
  return row.takes == FlagTakes::kValues ? SplitList(row.default_value)
                                         : std::vector{std::string(row.default_value)};
}

// The arguments, the last one first, as CLI11 wants them. Behind `--flag=` it would take the next
// argument for the value, so the empty value becomes an argument of its own.
std::vector<std::string> LastFirst(int argc, const char* const* argv) {
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const bool has_empty_value =
        argument.starts_with("--") && argument.find('=') == argument.size() - 1;
    arguments.push_back(has_empty_value ? argument.substr(0, argument.size() - 1) : argument);
    if (has_empty_value) arguments.emplace_back();
  }
  std::ranges::reverse(arguments);
  return arguments;
}

// CLI11's messages, which may take several lines, as one.
std::string OneLine(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::ranges::replace(text, '\n', ' ');
  return text;
}

std::vector<std::string> SortNames() {
  std::vector<std::string> names;
  for (const CodeRow<TopSort>& row : kTopSorts) names.emplace_back(row.name);
  return names;
}

// "; did you mean 'top'?", or nothing.
std::string DidYouMean(std::string_view text, const std::vector<std::string>& names) {
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::string_view likely = LikelyName(text, views);
  return likely.empty() ? "" : "; did you mean '" + std::string(likely) + "'?";
}

std::vector<std::string> FlagsOf(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* const option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  return flags;
}

}  // namespace

CommandLine::CommandLine(Options& options, std::string_view commit)
    : options_(options),
      version_text_("nccl-exporter " + std::string(kVersion) +
                    (commit.empty() ? "" : " (" + std::string(commit) + ")")),
      app_("Serves metrics of the NCCL communicators on this node to Prometheus.",
           "nccl-exporter") {
  places_.push_back({.command = Command::kServe, .app = &app_, .values = {}});
  AddFlags(places_.back());
  app_.set_version_flag("--version", version_text_, "Print the version and exit.");
  app_.set_help_flag("-h,--help", "Print this help and exit.");
  app_.require_subcommand(0, 1);
  AddTop();
  CLI::App* const in_flight =
      AddCommand(Command::kInFlight, "inflight",
                 "Print findings and which rank is in which collective, from --segment.dir.");
  in_flight->add_flag("--json", options.is_json, "Print one JSON object.");
  AddDaemon(*in_flight);
  AddCommand(Command::kDoctor, "doctor",
             "Check directories, plugin, NCCL, environment and daemon, and say what to change.")
      ->add_option("--pid", options.doctor_pid, "Process of a training job to check as well.")
      ->check(CLI::Range(1, kMostPid));
  AddJob();
  AddTrace();
  AddCommand(Command::kDump, "dump", "Print a segment as text.")
      ->add_option("SEGMENT", options.dump_segment, "File to print.")
      ->required();
  help_ = AddCommand(Command::kPrint, "help", "Print the help of a command.");
  help_->add_option("COMMAND", help_topic_, "Command; without it, the help of the program.");
  version_ = AddCommand(Command::kPrint, "version", "Print the version.");
  manual_ = AddCommand(Command::kPrint, "man", "Print the manual page.");
  completion_ = AddCommand(Command::kPrint, "completion", "Print the completion for bash.");
  for (CLI::App* const for_the_package : {manual_, completion_}) for_the_package->group("");
}

CLI::App* CommandLine::AddCommand(CLI::App& parent, Command command, const std::string& name,
                                  const std::string& help) {
  places_.push_back({.command = command, .app = parent.add_subcommand(name, help), .values = {}});
  AddFlags(places_.back());
  return places_.back().app;
}

void CommandLine::AddFlags(Place& place) {
  for (size_t i = 0; i < kOptions.size(); ++i) {
    const OptionRow& row = kOptions[i];
    const bool is_taken = place.command == Command::kServe ||
                          std::ranges::find(row.commands, place.command) != row.commands.end();
    if (!is_taken) continue;
    const std::string name(row.name), help(row.help);
    std::vector<std::string>& values = place.values[i];
    if (row.takes == FlagTakes::kNothing) {
      place.flags[i] = place.app->add_flag_callback(
          name, [&values] { values = {"on"}; }, help);
      continue;
    }
    CLI::Option* const flag = place.app->add_option(name, values, help);
    flag->default_str(std::string(row.default_value))->allow_extra_args(false);
    if (row.takes == FlagTakes::kValue) flag->expected(1);
    if (row.is_for_tests) flag->group("");
    place.flags[i] = flag;
  }
}

void CommandLine::AddTop() {
  CLI::App* const top =
      AddCommand(Command::kTop, "top",
                 "Show findings and the current state of the ranks in a terminal, from "
                 "--segment.dir.");
  top->add_flag(
      "--once", options_.is_once,
      "Print one screen after a second and exit. Without a terminal this is the default.");
  top->add_flag("--json", options_.is_json, "Print one JSON object after a second and exit.");
  top->add_option("--sort", options_.sort, "Order of the ranks.")
      ->check(CLI::IsMember(SortNames()))
      ->default_str("rank");
  AddDaemon(*top);
}

// Commands that show findings prefer those of the daemon.
void CommandLine::AddDaemon(CLI::App& command) {
  const auto fault_of = [](const std::string& value) {
    std::string fault;
    if (value != kNoDaemon) ParseDaemonAddress(value, fault);
    return fault.empty() ? fault : "invalid value '" + value + "': " + fault;
  };
  command
      .add_option("--daemon", options_.daemon,
                  "Address of this node's daemon, whose findings are shown: http://HOST:PORT, "
                  "unix:/PATH, or none for findings of the command itself. TLS and passwords are "
                  "not supported. Without it, the daemon's socket is asked first: " +
                      std::string(kFindingsSocket))
      ->check(CLI::Validator(fault_of, ""))
      ->default_str(std::string(kDefaultDaemon));
}

void CommandLine::AddJob() {
  const auto fault_of = [](const std::string& value) {
    std::string fault;
    ParseHttpAddress(value, fault);
    return fault.empty() ? fault : "invalid value '" + value + "': " + fault;
  };
  CLI::App* const job =
      AddCommand(Command::kJob, "job",
                 "Print what Prometheus has of a job: firing alerts, and what the rules recorded.");
  job->add_option("--prometheus", options_.job.prometheus,
                  "Address of Prometheus, or of a server with its HTTP API: "
                  "http[s]://HOST[:PORT][/PREFIX].")
      ->check(CLI::Validator(fault_of, ""))
      ->default_str(std::string(kDefaultPrometheus));
  job->add_option("--http.config.file", options_.job.http_config_file,
                  "File with a login, TLS and headers, as promtool takes it: basic_auth, "
                  "authorization, tls_config, http_headers.");
  const auto add_label = [&](const std::string& name, const char* label, const std::string& help) {
    return job->add_option_function<std::string>(
        name, [this, label](const std::string& value) { options_.job.wanted[label] = value; },
        help + " of the job; '': it has none.");
  };
  add_label("--job", "nccl_job", "Name, as Slurm's id,");
  add_label("--namespace", "namespace", "Namespace");
  add_label("--cluster", "cluster", "Cluster");
  add_label("--uid", "uid", "Number of the owner")
      ->check(CLI::Range(uint32_t{0}, std::numeric_limits<uint32_t>::max()));
  job->add_flag("--json", options_.job.is_json, "Print one JSON object.");
}

std::vector<const CLI::App*> CommandLine::Commands() const {
  const auto is_shown = [](const CLI::App* app) { return !app->get_group().empty(); };
  std::vector<const CLI::App*> commands;
  for (const CLI::App* const command : app_.get_subcommands(is_shown)) {
    commands.push_back(command);
    for (const CLI::App* const part : command->get_subcommands(is_shown)) commands.push_back(part);
  }
  return commands;
}

std::string CommandLine::NameOf(const CLI::App& command) {
  const CLI::App* const parent = command.get_parent();
  const bool is_part = parent != nullptr && parent->get_parent() != nullptr;
  return is_part ? parent->get_name() + " " + command.get_name() : command.get_name();
}

// The last one: a part of a command stands behind it.
const CommandLine::Place* CommandLine::Parsed() const {
  for (size_t i = places_.size() - 1; i > 0; --i) {
    if (places_[i].app->parsed()) return &places_[i];
  }
  return nullptr;
}

std::string CommandLine::Parse(int argc, const char* const* argv) {
  const auto print = [&](std::string text) {
    options_.command = Command::kPrint;
    options_.text = std::move(text);
    return std::string();
  };
  try {
    app_.parse(LastFirst(argc, argv));
  } catch (const CLI::CallForHelp&) {
    return print(app_.help());
  } catch (const CLI::CallForVersion& version) {
    return print(std::string(version.what()) + '\n');
  } catch (const CLI::ExtrasError&) {
    return Unexpected();
  } catch (const CLI::ParseError& wrong) {
    return OneLine(wrong.what());
  }
  if (version_->parsed()) return print(version_text_ + '\n');
  if (help_->parsed()) return Help();
  if (manual_->parsed()) return print(ManualPage(*this));
  if (completion_->parsed()) return print(BashCompletion(*this));
  if (const Place* const place = Parsed()) options_.command = place->command;
  return Store();
}

std::string CommandLine::Help() {
  const CLI::App* topic = help_topic_.empty() ? &app_ : nullptr;
  const std::string wanted = CLI::detail::join(help_topic_, " ");
  std::vector<std::string> names;
  for (const CLI::App* const command : Commands()) {
    names.push_back(NameOf(*command));
    if (names.back() == wanted) topic = command;
  }
  if (topic == nullptr) return "there is no command '" + wanted + "'" + DidYouMean(wanted, names);
  options_.command = Command::kPrint;
  // The program's own help would be that of the command that was parsed, which is `help`.
  options_.text =
      topic == &app_
          ? CLI::Formatter().make_help(&app_, "nccl-exporter", CLI::AppFormatMode::Normal)
          : topic->help(topic->get_parent() == &app_
                            ? "nccl-exporter"
                            : "nccl-exporter " + topic->get_parent()->get_name());
  return "";
}

// The first argument that has no place.
std::string CommandLine::Unexpected() const {
  const std::vector<std::string> left = app_.remaining(true);
  if (left.empty()) return "an argument was not expected";
  const Place* const place = Parsed();
  const CLI::App& app = place == nullptr ? app_ : *place->app;
  const std::string name = left.front().substr(0, left.front().find('='));
  if (!name.starts_with('-') && place == nullptr) {
    std::vector<std::string> names;
    for (const CLI::App* const command : Commands()) names.push_back(NameOf(*command));
    return "there is no command '" + name + "'" + DidYouMean(name, names);
  }
  if (!name.starts_with('-')) return "'" + name + "' was not expected after " + NameOf(app);
  if (place != nullptr && std::ranges::count(kOptions, name, &OptionRow::name) != 0)
    return name + " is a flag of the daemon, not of " + NameOf(app);
  const std::vector<std::string> flags = FlagsOf(app);
  if (std::ranges::count(flags, name) != 0)
    return name + " stands after the command: nccl-exporter " + NameOf(app) + " " + name;
  return "there is no flag '" + name + "'" + DidYouMean(name, flags);
}

std::string CommandLine::Store() {
  for (size_t row = 0; row < kOptions.size(); ++row) {
    std::string error = StoreRow(row, Parsed());
    if (!error.empty()) return error;
  }
  return "";
}

// Values that were given before the command, and those after it.
std::string CommandLine::StoreRow(size_t row, const Place* place) {
  const OptionRow& option = kOptions[row];
  std::vector<std::string> values = places_.front().values[row];
  if (place != nullptr) {
    const std::vector<std::string>& more = place->values[row];
    if (!values.empty() && !more.empty() && option.takes == FlagTakes::kValue)
      return std::string(option.name) + " is given twice";
    values.insert(values.end(), more.begin(), more.end());
  }
  if (values.empty()) values = DefaultsOf(option);
  for (const std::string& value : values) {
    std::string complaint(option.help);
    if (option.store(value, options_, complaint)) continue;
    return "invalid value '" + value + "' of " + std::string(option.name) + ": " + complaint;
  }
  return "";
}

Options ParseOptions(int argc, const char* const* argv, std::string& error,
                     std::string_view commit) {
  Options options;
  error = CommandLine(options, commit).Parse(argc, argv);
  return options;
}

}  // namespace nccl_exporter::exporter
