// SPDX-License-Identifier: Apache-2.0
// ParseOptions(), which registers the table of flags with CLI11.
#include "exporter/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <string_view>

#include "exporter/commands/top_screen.h"
#include "exporter/version.h"

namespace nccl_exporter::exporter {
namespace {

// The given values, or the default of a flag that is not given.
using Values = std::array<std::vector<std::string>, kOptions.size()>;

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

void StoreAll(const Values& values, Options& options, std::string& error) {
  for (size_t i = 0; i < kOptions.size(); ++i) {
    for (const std::string& value : values[i]) {
      std::string complaint(kOptions[i].help);
      if (kOptions[i].store(value, options, complaint)) continue;
      error =
          "invalid value '" + value + "' of " + std::string(kOptions[i].name) + ": " + complaint;
      return;
    }
  }
}

void AddOptions(CLI::App& app, Values& values) {
  for (size_t i = 0; i < kOptions.size(); ++i) {
    const OptionRow& row = kOptions[i];
    values[i] = DefaultsOf(row);
    if (row.takes == FlagTakes::kNothing) {
      app.add_flag_callback(
          std::string(row.name), [&value = values[i]] { value = {"on"}; }, std::string(row.help));
      continue;
    }
    CLI::Option* option = app.add_option(std::string(row.name), values[i], std::string(row.help));
    option->default_str(std::string(row.default_value))->allow_extra_args(false);
    if (row.takes == FlagTakes::kValue) option->expected(1);
  }
}

// Flags of `cardinality`. If one is given, a synthetic node of that shape is counted instead of
// this node.
CLI::App* AddCardinality(CLI::App& app, NodeShape& shape) {
  constexpr int kMostRanks = 64;
  constexpr int kMostCommunicators = 1000;
  CLI::App* command = app.add_subcommand("cardinality",
                                         "Print the series and bytes of a scrape: of this node, "
                                         "from --segment.dir, or of a node with the given shape.");
  command->fallthrough();
  command->add_option("--ranks", shape.ranks, "Ranks on the node.")
      ->check(CLI::Range(1, kMostRanks));
  command->add_option("--communicators", shape.communicators, "Communicators of each rank.")
      ->check(CLI::Range(1, kMostCommunicators));
  command->add_option("--p2p", shape.point_to_point, "Number of these that only send and receive.")
      ->check(CLI::Range(0, kMostCommunicators));
  command
      ->add_option("--collectives", shape.collectives,
                   "Number of collectives that each of the others uses.")
      ->check(CLI::Range(1, kCollectivesOfShape));
  return command;
}

bool HasFlags(const CLI::App& command) {
  return std::ranges::any_of(command.get_options(),
                             [](const CLI::Option* option) { return option->count() > 0; });
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

}  // namespace

Options ParseOptions(int argc, const char* const* argv, std::string& error) {
  CLI::App app("Serves metrics of the NCCL communicators on this node to Prometheus.",
               "nccl-exporter");
  Options options;
  Values values;
  AddOptions(app, values);
  app.set_version_flag("--version", "nccl-exporter " + std::string(kVersion),
                       "Print the version and exit.");
  app.set_help_flag("-h,--help", "Print this help and exit.");
  app.require_subcommand(0, 1);
  CLI::App* dump = app.add_subcommand("dump", "Print a segment as text.");
  dump->add_option("SEGMENT", options.dump_segment, "File to print.")->required();
  CLI::App* in_flight = app.add_subcommand(
      "inflight", "Print which rank is in which collective, from --segment.dir.");
  CLI::App* top = app.add_subcommand(
      "top", "Show the current state of the ranks in a terminal, from --segment.dir.");
  top->add_flag(
      "--once", options.is_once,
      "Print one screen after a second and exit. Without a terminal this is the default.");
  top->add_option("--sort", options.sort, "Order of the ranks.")
      ->check(CLI::IsMember(SortNames()))
      ->default_str("rank");
  NodeShape shape;
  const CLI::App* cardinality = AddCardinality(app, shape);
  CLI::App* catalogue = app.add_subcommand(
      "catalogue", "Print families, causes of loss, reasons and flags as JSON, for scripts.");
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
  if (catalogue->parsed()) options.command = Command::kCatalogue;
  StoreAll(values, options, error);
  return options;
}

}  // namespace nccl_exporter::exporter
