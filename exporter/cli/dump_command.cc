// SPDX-License-Identifier: Apache-2.0
// `nccl-exporter dump SEGMENT`: one segment as text.
#include <CLI/CLI.hpp>
#include <memory>
#include <optional>

#include "collector/collector.h"
#include "exporter/cli/commands.h"
#include "exporter/cli/segment_dump.h"

namespace nccl_exporter::exporter {
namespace {

int Dump(const std::string& path) {
  collector::SegmentError error{};
  std::string detail;
  const std::optional<collector::ProcessSnapshot> process =
      collector::ReadSegmentFile(path, &error, &detail);
  if (process) return Print(DumpText(*process));
  if (error == collector::SegmentError::kCount)
    return Fail(kRuntimeFailure, path + ": not ready: " + detail);
  return Fail(kRuntimeFailure,
              path + ": " + std::string(NameOf(error)) + (detail.empty() ? "" : ": " + detail));
}

}  // namespace

Command DumpCommand() {
  const auto segment = std::make_shared<std::string>();
  return {.name = "dump",
          .help = "Print a segment as text.",
          .add_flags =
              [segment](CLI::App& app) {
                app.add_option("SEGMENT", *segment, "File to print.")->required();
              },
          .run = [segment](const Options&) { return Dump(*segment); }};
}

}  // namespace nccl_exporter::exporter
