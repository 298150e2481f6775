// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/node_access.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "exporter/cli/commands.h"
#include "exporter/web/directory_states.h"
#include "exporter/web/node_json.h"

namespace nccl_exporter::exporter {
namespace {

// Empty if any of the watched directories exists: of those by default, some may not.
std::string MissingDirectories(const std::vector<std::string>& paths) {
  std::string text;
  for (const WatchedDirectory& directory : DirectoryStates(paths)) {
    if (directory.state != "missing") return "";
    text += (text.empty() ? "cannot read " : ", ") + directory.path;
  }
  return text + ": " + std::strerror(ENOENT) +
         (paths.size() > 1 ? "; --segment.dir names others" : "");
}

}  // namespace

collector::Collector CollectorOf(const Options& options) {
  return collector::Collector(
      {.directories = options.segment_dirs, .retention = std::chrono::nanoseconds::max()});
}

Thresholds ThresholdsOf(const Options& options) {
  const Thresholds thresholds =
      options.findings_config.empty() ? Thresholds() : ReadThresholds(options.findings_config);
  return thresholds.Scaled(options.findings_time_scale);
}

LedgerTimes LedgerTimesOf(const Options& options, const Thresholds& thresholds) {
  LedgerTimes times = LedgerTimes().Scaled(options.findings_time_scale);
  times.longest_step_ns = thresholds.longest_step.count();
  return times;
}

std::shared_ptr<const Book> BookNow(collector::Collector& collector, Ledger& ledger) {
  const std::shared_ptr<const collector::NodeSnapshot> node = collector.Snapshot();
  const auto monotonic = std::chrono::steady_clock::now().time_since_epoch();
  return ledger.Enter(node, {.monotonic_ns = std::chrono::nanoseconds(monotonic).count(),
                             .realtime_ns = node->taken_realtime_ns});
}

std::string NodeName() {
  if (const char* const name = std::getenv("NODE_NAME"); name != nullptr && *name != '\0')
    return name;
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::string UnreadableDirectories(const collector::NodeSnapshot& node) {
  std::string text;
  for (const collector::SegmentTrouble& trouble : node.segment_troubles) {
    if (trouble.error != collector::SegmentError::kDirectoryUnreadable || trouble.present == 0)
      continue;
    text += text.empty() ? "cannot read " : ", ";
    text += trouble.file + ": " + trouble.detail;
    if (trouble.present > 1)
      text += " (and " + std::to_string(trouble.present - 1) + " more of the same owner)";
  }
  return text;
}

std::string NodeText(const Options& options, const collector::NodeSnapshot& node,
                     const NodeHistory& history, const ShownJudgement& shown) {
  constexpr size_t kMostBytes = 64 << 20;  // a reader has it all, so it is no answer of a server
  return NodeFields(node, history, shown.judgement,
                    {.node_name = NodeName(),
                     .telemetry_path = options.telemetry_path,
                     .segment_directories = options.segment_dirs,
                     .node_answer_bytes = kMostBytes},
                    shown.Json());
}

int PrintNode(const Options& options, const collector::NodeSnapshot& node,
              const std::string& text) {
  std::string unreadable = UnreadableDirectories(node);
  if (unreadable.empty() && node.processes.empty())
    unreadable = MissingDirectories(options.segment_dirs);
  if (unreadable.empty()) return Print(text);
  const int printed = node.processes.empty() ? kSuccess : Print(text);
  return printed == kSuccess ? Fail(kRuntimeFailure, unreadable) : printed;
}

}  // namespace nccl_exporter::exporter
