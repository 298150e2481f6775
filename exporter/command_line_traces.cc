// SPDX-License-Identifier: Apache-2.0
// The command `trace` and its parts.
#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "exporter/command_line.h"
#include "exporter/text/duration_text.h"

namespace nccl_exporter::exporter {
namespace {

// As in the label `comm`: hexadecimal.
std::optional<uint64_t> ParseCommunicator(std::string_view text) {
  uint64_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id, 16);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return id;
}

// A name that asks for Perfetto's own format would mislead: the file is Chrome's.
std::string FaultOfOutput(const std::string& path) {
  if (path.empty()) return "the name is empty";
  const bool is_of_perfetto = path.ends_with(".pftrace") || path.ends_with(".pftrace.gz");
  if (!is_of_perfetto) return "";
  return "'" + path + "' is not written: write NAME.json or NAME.json.gz, which Perfetto opens";
}

}  // namespace

void CommandLine::AddTrace() {
  const auto add_length = [](CLI::App& command, const std::string& name,
                             std::optional<std::chrono::nanoseconds>& target,
                             const std::string& help) {
    const auto store = [&target](const std::string& value) {
      const std::optional<std::chrono::nanoseconds> length = ParseDuration(value);
      if (!length || length->count() == 0 || *length > kMostTraceLength)
        throw CLI::ValidationError("write seconds, or a duration like 1m30s; an hour at most");
      target = length;
    };
    return command.add_option_function<std::string>(name, store, help);
  };
  const auto add_output = [this](CLI::App& command) {
    command
        .add_option("-o,--output", options_.trace.output,
                    "File to write, in Chrome's format: NAME.json, or NAME.json.gz to compress it. "
                    "Without it, the trace goes to standard output.")
        ->check(CLI::Validator(FaultOfOutput, ""));
  };
  CLI::App* const trace =
      AddCommand(Command::kTrace, "trace",
                 "Write operations of the ranks of this node as a trace for Perfetto, from "
                 "--segment.dir. Without --level the job is not touched.");
  CLI::Option* const last =
      add_length(*trace, "--last", options_.trace.last,
                 "Length of time before now, as far as the rings hold it. 30s without a value.");
  add_length(*trace, "--seconds", options_.trace.length,
             "Record all operations from now on, for so long or until Ctrl-C.")
      ->excludes(last);
  trace->add_option_function<std::string>(
      "--level",
      [this](const std::string& value) {
        static constexpr std::array<std::pair<std::string_view, TraceLevel>, 3> kLevels{
            {{"ops", TraceLevel::kOperations},
             {"channels", TraceLevel::kChannels},
             {"steps", TraceLevel::kSteps}}};
        const auto level =
            std::ranges::find(kLevels, value, [](const auto& row) { return row.first; });
        if (level == kLevels.end())
          throw CLI::ValidationError("invalid value '" + value +
                                     "' of --level: it is ops, channels or steps");
        options_.trace.level = level->second;
      },
      "With --seconds: ops; channels, which each process records with its operations for a minute "
      "at most; or steps, the same with steps of the network.");
  trace->add_option_function<std::string>(
      "--comm",
      [this](const std::string& value) {
        options_.trace.communicator = ParseCommunicator(value);
        if (!options_.trace.communicator)
          throw CLI::ValidationError("invalid value '" + value +
                                     "' of --comm: it is as in the label comm");
      },
      "With --level: channels and steps of this communicator alone. Its id, as in the label comm.");
  trace->final_callback([this] {
    if (options_.trace.level == TraceLevel::kOperations) {
      if (options_.trace.communicator)
        throw CLI::ValidationError("--comm", "it needs --level channels or steps");
      return;
    }
    if (!options_.trace.length || *options_.trace.length > kMostDetailedLength)
      throw CLI::ValidationError("--level", "channels and steps need --seconds, 60 at most");
  });
  trace
      ->add_option(
          "--job", options_.trace.wanted,
          "Slurm id of the job, its namespace, or the beginning of its pods' names. May be "
          "given several times: all must be true.")
      ->allow_extra_args(false);
  add_output(*trace);
  trace->add_option("--append", options_.trace.append_to,
                    "Trace file of PyTorch's profiler. The output has its events as well.");
  trace->require_subcommand(0, 1);
  CLI::App* const merge = AddCommand(
      *trace, Command::kTraceMerge, "merge",
      "Put traces of several nodes on one time axis, and print how closely it is known.");
  merge->add_option("FILE", options_.trace.files, "Traces in Chrome's format.")->required();
  add_output(*merge);
  CLI::App* const summary =
      AddCommand(*trace, Command::kTraceSummary, "summary",
                 "Print the slowest operations of traces, who waited for whom, and gaps.");
  summary->add_option("FILE", options_.trace.files, "Traces in Chrome's format.")->required();
}

}  // namespace nccl_exporter::exporter
