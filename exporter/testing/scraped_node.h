// SPDX-License-Identifier: Apache-2.0
// ScrapedNode, the scrape of a snapshot for tests: values by metric and labels. It checks that no
// two series have the same labels.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "exporter/series/metric_filter.h"
#include "exporter/series/snapshot_families.h"
#include "exporter/testing/example_snapshot.h"

namespace nccl_exporter::exporter {

class ScrapedNode {
 public:
  explicit ScrapedNode(collector::NodeSnapshot snapshot, size_t series_limit = kSeriesLimit,
                       const MetricFilter& filter = {}, Collect collect = Collect::kWhole)
      : own_memory_(std::make_unique<SeriesMemory>(filter)),
        exposition_(ExpositionOfCatalogue(filter, collect)),
        drops_(Scrape(std::move(snapshot), series_limit, *own_memory_, collect)) {}

  // A scrape after others with the same memory.
  ScrapedNode(collector::NodeSnapshot snapshot, const MetricFilter& filter, SeriesMemory& memory,
              size_t series_limit = kSeriesLimit, Collect collect = Collect::kWhole)
      : exposition_(ExpositionOfCatalogue(filter, collect)),
        drops_(Scrape(std::move(snapshot), series_limit, memory, collect)) {}

  // Series of a metric as label texts with their values: {"comm=...,rank=3": 1.5}.
  std::map<std::string, double> Values(Metric metric) const {
    std::map<std::string, double> values;
    for (const Series& series : FamilyOf(metric).series) {
      const bool is_new = values.try_emplace(TextOf(series), series.value).second;
      EXPECT_TRUE(is_new) << "twice: " << TextOf(series);
    }
    return values;
  }

  // The only value among the series whose labels contain `part`.
  std::optional<double> Value(Metric metric, const std::string& part = "") const {
    std::optional<double> found;
    for (const auto& [labels, value] : Values(metric)) {
      if (labels.find(part) == std::string::npos) continue;
      EXPECT_FALSE(found.has_value()) << "several series match " << part;
      found = value;
    }
    return found;
  }

  std::vector<uint64_t> Counts(Metric metric) const {
    const Series& series = FamilyOf(metric).series.at(0);
    return {series.counts.begin(), series.counts.end()};
  }

  size_t samples() const {
    size_t samples = 0;
    for (const Family& family : exposition_.families)
      samples += family.series.size() * SamplesPerSeries(family);
    return samples;
  }
  const SeriesDrops& drops() const { return drops_; }

 private:
  const Family& FamilyOf(Metric metric) const {
    return exposition_.families[static_cast<size_t>(metric)];
  }

  std::string TextOf(const Series& series) const {
    std::string text;
    for (const LabelsId id : {series.group_labels, series.variable_labels}) {
      for (const Label& label : exposition_.labels[id]->labels())
        text += label.name + '=' + label.value + ',';
    }
    return text;
  }

  SeriesDrops Scrape(collector::NodeSnapshot snapshot, size_t series_limit, SeriesMemory& memory,
                     Collect collect) {
    return AddSnapshotFamilies(std::make_shared<const collector::NodeSnapshot>(std::move(snapshot)),
                               series_limit, memory, exposition_, collect);
  }

  std::unique_ptr<SeriesMemory> own_memory_;
  Exposition exposition_;
  SeriesDrops drops_;
};

inline collector::NodeSnapshot NodeOf(std::vector<collector::ProcessSnapshot> processes) {
  collector::NodeSnapshot snapshot;
  snapshot.processes = std::move(processes);
  return snapshot;
}

inline collector::ProcessSnapshot ProcessOf(
    uint64_t pid, std::vector<collector::CommunicatorSnapshot> communicators) {
  collector::ProcessSnapshot process = EmptyProcess(pid);
  process.communicators = std::move(communicators);
  return process;
}

inline collector::NodeSnapshot NodeOfOne(collector::CommunicatorSnapshot communicator) {
  return NodeOf({ProcessOf(1, {std::move(communicator)})});
}

inline collector::CommunicatorSnapshot Overflow() {
  collector::CommunicatorSnapshot overflow = EmptyCommunicator(0, 0);
  overflow.is_overflow = true;
  overflow.has_identity = false;
  overflow.ranks = 0;
  return overflow;
}

// Uses every function, so that it has as many series as a communicator can have.
inline collector::CommunicatorSnapshot BusyCommunicator(uint64_t id) {
  collector::CommunicatorSnapshot communicator = EmptyCommunicator(id, 0);
  for (size_t i = 0; i < kFunctionCount; ++i)
    AddOperation(communicator, static_cast<Function>(i), 4 << 20, 1000000);
  return communicator;
}

}  // namespace nccl_exporter::exporter
