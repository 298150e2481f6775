// SPDX-License-Identifier: Apache-2.0
// Prints the series and bytes of a scrape of a synthetic node, or of the segments in --segment.dir:
// bazel run //exporter/testing:cardinality -- --ranks 8 --communicators 12
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "collector/collector.h"
#include "exporter/options.h"
#include "exporter/testing/cardinality.h"
#include "exporter/testing/synthetic_node.h"

namespace nccl_exporter::exporter {
namespace {

constexpr const char* kSegmentDirectory = "--segment.dir";

// The flags of the daemon that are left, as the daemon reads them.
Options DaemonOptions(std::vector<std::string> flags) {
  std::vector<const char*> arguments{"cardinality"};
  for (const std::string& flag : flags) arguments.push_back(flag.c_str());
  std::string error;
  Options options = ParseOptions(static_cast<int>(arguments.size()), arguments.data(), error);
  if (error.empty() && options.command != Command::kServe) error = "it takes flags alone";
  if (!error.empty()) throw CLI::ValidationError(error);
  return options;
}

std::shared_ptr<const collector::NodeSnapshot> NodeIn(const std::vector<std::string>& directories,
                                                      const MetricFilter& metrics) {
  return collector::Collector({.directories = directories,
                               .retention = std::chrono::nanoseconds::max(),
                               .splits_durations = metrics.splits_durations()})
      .Snapshot();
}

int Main(int argc, char** argv) {
  constexpr int kMostRanks = 64;
  constexpr int kMostCommunicators = 1000;
  NodeShape shape;
  std::vector<std::string> collect, directories;
  CLI::App app(
      "Print the series and bytes of a scrape. Further flags: --metrics.*, see the daemon.");
  app.add_option("--ranks", shape.ranks, "Ranks on the node.")->check(CLI::Range(1, kMostRanks));
  app.add_option("--communicators", shape.communicators, "Communicators of each rank.")
      ->check(CLI::Range(1, kMostCommunicators));
  app.add_option("--p2p", shape.point_to_point, "Number of these that only send and receive.")
      ->check(CLI::Range(0, kMostCommunicators));
  app.add_option("--collectives", shape.collectives,
                 "Number of collectives that each of the others uses.")
      ->check(CLI::Range(1, kCollectivesOfShape));
  app.add_option("--collect", collect, "Part of the metrics: " + KnownParts() + ". Default: all.")
      ->allow_extra_args(false);
  app.add_option(kSegmentDirectory, directories, "Count these segments, and no synthetic node.")
      ->allow_extra_args(false);
  app.allow_extras();
  try {
    app.parse(argc, argv);
    const std::optional<Collect> part = CollectOf(collect);
    if (!part) throw CLI::ValidationError("--collect", "it is one of " + KnownParts());
    const MetricFilter metrics = DaemonOptions(app.remaining()).metrics;
    const auto node = directories.empty() ? NodeOfShape(shape) : NodeIn(directories, metrics);
    std::fputs(CardinalityText(AssumedBook(node), metrics, *part).c_str(), stdout);
    return 0;
  } catch (const CLI::ParseError& wrong) {
    return app.exit(wrong);
  }
}

}  // namespace
}  // namespace nccl_exporter::exporter

int main(int argc, char** argv) { return nccl_exporter::exporter::Main(argc, argv); }
