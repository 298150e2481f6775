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

// A snapshot with its book, or without counts.
struct NodeToScrape {
  // Implicit, so that a test writes ScrapedNode(node).
  NodeToScrape(collector::NodeSnapshot of) : NodeToScrape(BookOf(std::move(of))) {}  // NOLINT
  NodeToScrape(Book of) : book(std::make_shared<Book>(std::move(of))) {}             // NOLINT
  NodeToScrape(std::shared_ptr<const Book> of) : book(std::move(of)) {}              // NOLINT

  std::shared_ptr<const Book> book;
};

class ScrapedNode {
 public:
  explicit ScrapedNode(NodeToScrape node, size_t series_limit = kSeriesLimit,
                       const MetricFilter& filter = {}, Collect collect = Collect::kWhole)
      : own_memory_(std::make_unique<SeriesMemory>(filter)),
        exposition_(ExpositionOfCatalogue(filter, collect)),
        drops_(Scrape(node, series_limit, *own_memory_, collect)) {}

  // A scrape after others with the same memory.
  ScrapedNode(NodeToScrape node, const MetricFilter& filter, SeriesMemory& memory,
              size_t series_limit = kSeriesLimit, Collect collect = Collect::kWhole)
      : exposition_(ExpositionOfCatalogue(filter, collect)),
        drops_(Scrape(node, series_limit, memory, collect)) {}

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

  SeriesDrops Scrape(const NodeToScrape& node, size_t series_limit, SeriesMemory& memory,
                     Collect collect) {
    return AddSnapshotFamilies(node.book, series_limit, memory, exposition_, collect);
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

// A communicator and its counts, as a test makes them.
struct Counted {
  collector::CommunicatorSnapshot communicator;
  std::optional<RankCounts> counts;
};
struct CountedProcess {
  uint64_t pid = 0;
  std::vector<Counted> communicators;
  std::optional<ProcessCounts> counts = {};
};

inline Book BookOf(const std::vector<CountedProcess>& processes) {
  collector::NodeSnapshot node;
  for (const CountedProcess& process : processes) {
    node.processes.push_back(EmptyProcess(process.pid));
    for (const Counted& one : process.communicators)
      node.processes.back().communicators.push_back(one.communicator);
  }
  Book book = BookOf(std::move(node));
  for (size_t i = 0; i < processes.size(); ++i) {
    book.rows[i].counts = processes[i].counts;
    for (size_t j = 0; j < processes[i].communicators.size(); ++j)
      book.rows[i].ranks[j] = processes[i].communicators[j].counts;
  }
  return book;
}

inline Book BookOfOne(Counted communicator) {
  return BookOf({CountedProcess{.pid = 1, .communicators = {std::move(communicator)}}});
}

inline Book AssumedBookOf(collector::NodeSnapshot snapshot) {
  return *AssumedBook(std::make_shared<collector::NodeSnapshot>(std::move(snapshot)));
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
