// SPDX-License-Identifier: Apache-2.0
// Prints the series and bytes of a scrape of a synthetic node, or of the segments in --segment.dir:
// bazel run //exporter/testing:cardinality -- --ranks 8 --communicators 12
#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collector/collector.h"
#include "exporter/cli/options.h"
#include "exporter/testing/cardinality.h"
#include "exporter/testing/synthetic_node.h"

namespace nccl_exporter::exporter {
namespace {

std::shared_ptr<const collector::NodeSnapshot> NodeIn(const Options& options) {
  return collector::Collector({.directories = options.segment_dirs,
                               .retention = std::chrono::nanoseconds::max(),
                               .splits_durations = options.metrics.splits_durations()})
      .Snapshot();
}

int Main(int argc, char** argv) {
  constexpr int kMostRanks = 64;
  constexpr int kMostCommunicators = 1000;
  NodeShape shape;
  std::vector<std::string> collect;
  CLI::App app("Print the series and bytes of a scrape: of a node of this shape, or of this node.");
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
  std::array<std::vector<std::string>, kOptions.size()> values;
  for (size_t i = 0; i < kOptions.size(); ++i) {
    if (kOptions[i].name.starts_with("--metrics.") || kOptions[i].name == "--segment.dir")
      AddFlag(kOptions[i], app, values[i]);
  }
  try {
    app.parse(argc, argv);
    const std::optional<Collect> part = CollectOf(collect);
    if (!part) throw CLI::ValidationError("--collect", "it is one of " + KnownParts());
    Options options;
    for (size_t i = 0; i < kOptions.size(); ++i) {
      const std::string fault = values[i].empty() ? "" : StoreFlag(kOptions[i], values[i], options);
      if (!fault.empty()) throw CLI::ValidationError(fault);
    }
    const auto node = options.segment_dirs.empty() ? NodeOfShape(shape) : NodeIn(options);
    std::fputs(CardinalityText(AssumedBook(node), options.metrics, *part).c_str(), stdout);
    return 0;
  } catch (const CLI::ParseError& wrong) {
    return app.exit(wrong);
  }
}

}  // namespace
}  // namespace nccl_exporter::exporter

int main(int argc, char** argv) { return nccl_exporter::exporter::Main(argc, argv); }
