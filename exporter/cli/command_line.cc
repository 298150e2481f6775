// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/command_line.h"

#include <algorithm>
#include <utility>

#include "exporter/text/nearest_name.h"
#include "exporter/text/version.h"

namespace nccl_exporter::exporter {
namespace {

// CLI11's messages, which may take several lines, as one.
std::string OneLine(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::ranges::replace(text, '\n', ' ');
  return text;
}

// "; did you mean 'top'?", or nothing.
std::string DidYouMean(std::string_view text, const std::vector<std::string>& names) {
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::string_view likely = LikelyName(text, views);
  return likely.empty() ? "" : "; did you mean '" + std::string(likely) + "'?";
}

// Names of the flags that the help shows: "--json".
std::vector<std::string> FlagsOf(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* const option : CommandLine::OptionsOf(app)) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  return flags;
}

}  // namespace

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

CommandLine::CommandLine(std::string_view commit)
    : app_("Serves metrics of the NCCL communicators on this node to Prometheus.",
           "nccl-exporter") {
  for (size_t i = 0; i < kOptions.size(); ++i) AddFlag(kOptions[i], app_, values_[i]);
  app_.set_version_flag("--version",
                        "nccl-exporter " + std::string(kVersion) +
                            (commit.empty() ? "" : " (" + std::string(commit) + ")"),
                        "Print the version and exit.");
  app_.set_help_flag("-h,--help", "Print this help and exit.");
  app_.require_subcommand(0, 1);
  app_.add_subcommand("extension", "Extensions by the C interface: run, check, list.")
      ->require_subcommand(1);
  for (const Command& command :
       {TopCommand(), InFlightCommand(), DoctorCommand(), ReportCommand(), ReportDiffCommand(),
        ReportCostsCommand(), WaitCommand(), OtlpCommand(), TraceCommand(), TraceMergeCommand(),
        TraceSummaryCommand(), ExtensionRunCommand(), ExtensionCheckCommand(),
        ExtensionListCommand()})
    Add(command);
  app_.add_subcommand("man", "Print the manual page.")->group("");
}

void CommandLine::Add(const Command& command) {
  const size_t space = command.name.find(' ');
  CLI::App& parent =
      space == std::string::npos ? app_ : *app_.get_subcommand(command.name.substr(0, space));
  // npos + 1 is 0.
  CLI::App* const app = parent.add_subcommand(command.name.substr(space + 1), command.help);
  runs_[app] = command.run;
  for (size_t i = 0; i < kOptions.size(); ++i) {
    if (std::ranges::count(command.daemon_flags, kOptions[i].name) != 0)
      AddFlag(kOptions[i], *app, values_[i]);
  }
  command.add_flags(*app);
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

std::vector<const CLI::Option*> CommandLine::OptionsOf(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) { return !option->get_group().empty(); });
}

std::string CommandLine::NameOf(const CLI::App& command) {
  const CLI::App* const parent = command.get_parent();
  const bool is_part = parent != nullptr && parent->get_parent() != nullptr;
  return is_part ? parent->get_name() + " " + command.get_name() : command.get_name();
}

const CLI::App& CommandLine::Given() const {
  const CLI::App* given = &app_;
  while (!given->get_subcommands().empty()) given = given->get_subcommands().front();
  return *given;
}

std::string CommandLine::Parse(int argc, const char* const* argv) {
  try {
    app_.parse(LastFirst(argc, argv));
  } catch (const CLI::CallForHelp&) {
    return WillPrint(app_.help());
  } catch (const CLI::CallForVersion& version) {
    return WillPrint(std::string(version.what()) + '\n');
  } catch (const CLI::ExtrasError&) {
    return Unexpected();
  } catch (const CLI::ParseError& wrong) {
    return OneLine(wrong.what());
  }
  if (app_.got_subcommand("man")) return WillPrint(ManualPage(*this));
  if (const auto run = runs_.find(&Given()); run != runs_.end()) run_ = run->second;
  return StoreValues();
}

std::string CommandLine::WillPrint(std::string text) {
  text_ = std::move(text);
  run_ = [this](const Options&) { return Print(text_); };
  return "";
}

// The fault of the first argument that has no place.
std::string CommandLine::Unexpected() const {
  const std::vector<std::string> left = app_.remaining(true);
  if (left.empty()) return "an argument was not expected";
  const CLI::App& app = Given();
  const std::string name = left.front().substr(0, left.front().find('='));
  if (name == "job" && &app == &app_)
    return "there is no command 'job' any more: nccl-exporter report shows a job";
  if (!name.starts_with('-') && &app == &app_) {
    std::vector<std::string> names;
    for (const CLI::App* const command : Commands()) names.push_back(NameOf(*command));
    return "there is no command '" + name + "'" + DidYouMean(name, names);
  }
  if (!name.starts_with('-')) return "'" + name + "' was not expected after " + NameOf(app);
  if (&app != &app_ && std::ranges::count(kOptions, name, &OptionRow::name) != 0)
    return name + " is a flag of the daemon, not of " + NameOf(app);
  const std::vector<std::string> flags = FlagsOf(app);
  if (std::ranges::count(flags, name) != 0)
    return name + " stands after the command: nccl-exporter " + NameOf(app) + " " + name;
  return "there is no flag '" + name + "'" + DidYouMean(name, flags);
}

std::string CommandLine::StoreValues() {
  for (size_t i = 0; i < kOptions.size(); ++i) {
    if (kOptions[i].takes == FlagTakes::kValue && values_[i].size() > 1)
      return std::string(kOptions[i].name) + " is given twice";
    std::string fault = StoreFlag(kOptions[i], values_[i], options_);
    if (!fault.empty()) return fault;
  }
  return "";
}

}  // namespace nccl_exporter::exporter
