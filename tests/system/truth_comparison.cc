// SPDX-License-Identifier: Apache-2.0
#include "tests/system/truth_comparison.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <utility>

#include "collector/collector.h"
#include "proto/buckets.h"
#include "proto/collective.h"

namespace nccl_exporter {
namespace {

using nlohmann::json;

constexpr int kSizeHistograms = 11;  // of a communicator, as proto/README.md says

// Counts of the ground truth's sparse histogram up to and including array index `last`.
uint64_t CountUpTo(const json& buckets, int last) {
  uint64_t count = 0;
  for (const auto& [index, value] : buckets.items()) {
    if (std::stoi(index) <= last) count += value.get<uint64_t>();
  }
  return count;
}

class FunctionComparison {
 public:
  FunctionComparison(const Exposition& scrape, Labels labels, std::string function,
                     const json& truth, uint32_t ranks)
      : scrape_(scrape),
        labels_(std::move(labels)),
        name_(std::move(function)),
        truth_(truth),
        ranks_(ranks) {
    function_ = FunctionByName(name_);
    is_point_to_point_ = TraitsOf(function_).is_point_to_point;
  }

  void Check() {
    Expect("nccl_api_calls_total", With("function", name_), truth_["calls"].get<double>());
    if (is_point_to_point_) {
      CheckPointToPoint();
    } else {
      CheckSizes();
    }
    CheckDurations();
    if (!is_point_to_point_ && TraitsOf(function_).bus_factor != BusFactor::kUndefined)
      CheckBandwidths();
  }

 private:
  Labels With(const std::string& key, const std::string& value) const {
    Labels labels = labels_;
    labels[key] = value;
    return labels;
  }
  void Expect(const std::string& name, const Labels& labels, double expected) const {
    EXPECT_EQ(scrape_.Value(name, labels).value_or(0), expected) << name << " of " << Where();
  }
  std::string Where() const {
    return name_ + " on comm " + labels_.at("comm") + " rank " + labels_.at("rank");
  }
  std::string Prefix() const {
    return !is_point_to_point_ ? "nccl_collective_"
           : name_ == "Send"   ? "nccl_p2p_send_"
                               : "nccl_p2p_recv_";
  }

  void CheckSizes() {
    for (const auto& [size, counts] : truth_["sizes"].items()) {
      Labels labels = With("collective", name_);
      labels["size"] = size;
      Expect(Prefix() + "operations_total", labels, counts["operations"].get<double>());
      Expect(Prefix() + "bytes_total", labels, counts["bytes"].get<double>());
      Expect(Prefix() + "timed_operations_total", labels, counts["timed_operations"].get<double>());
      ExpectNear(Prefix() + "busy_seconds_total", labels, counts["busy_ns"].get<double>() / 1e9);
      EXPECT_NEAR(scrape_.Value(Prefix() + "bus_bytes_total", labels).value_or(0),
                  BusBytes(function_, counts["timed_bytes"].get<uint64_t>(), ranks_), 1.0)
          << "bus bytes of " << Where();
    }
  }
  void CheckPointToPoint() {
    double operations = 0, bytes = 0, timed = 0, busy_ns = 0;
    for (const auto& [size, counts] : truth_["sizes"].items()) {
      operations += counts["operations"].get<double>();
      bytes += counts["bytes"].get<double>();
      timed += counts["timed_operations"].get<double>();
      busy_ns += counts["busy_ns"].get<double>();
    }
    Expect(Prefix() + "operations_total", labels_, operations);
    Expect(Prefix() + "bytes_total", labels_, bytes);
    Expect(Prefix() + "timed_operations_total", labels_, timed);
    ExpectNear(Prefix() + "busy_seconds_total", labels_, busy_ns / 1e9);
  }
  void ExpectNear(const std::string& name, const Labels& labels, double expected) const {
    EXPECT_NEAR(scrape_.Value(name, labels).value_or(0), expected, std::abs(expected) * 1e-9)
        << name << " of " << Where();
  }

  void CheckDurations() {
    Labels labels = is_point_to_point_ ? labels_ : With("collective", name_);
    CheckHistogram<DurationBuckets>(Prefix() + "duration_seconds", labels, truth_["duration"],
                                    truth_["duration_sum_ns"].get<double>() / 1e9, 1e-9);
  }
  void CheckBandwidths() {
    // The sum is kept in KiB/s, rounded to nearest for each operation of at least 1 MiB/s.
    CheckHistogram<BandwidthBuckets>("nccl_collective_bus_bandwidth_bytes_per_second",
                                     With("collective", name_), truth_["bandwidth"],
                                     truth_["bandwidth_sum"].get<double>(), 1e-3);
  }
  template <typename Range>
  void CheckHistogram(const std::string& name, const Labels& labels, const json& buckets,
                      double sum, double tolerance) {
    const uint64_t all = CountUpTo(buckets, Range::kCount);
    EXPECT_EQ(scrape_.Value(name + "_count", labels).value_or(0), static_cast<double>(all))
        << name << " of " << Where();
    EXPECT_NEAR(scrape_.Value(name + "_sum", labels).value_or(0), sum, sum * tolerance)
        << name << " of " << Where();
    for (const Sample& bucket : scrape_.Find(name + "_bucket", labels)) {
      const double bound = std::stod(bucket.labels.at("le"));
      int last = Range::kCount;
      if (std::isfinite(bound)) {
        last = 0;
        while (last < Range::kBoundCount && Range::UpperBound(last) < bound * (1 - 1e-12)) ++last;
      }
      EXPECT_EQ(bucket.value, static_cast<double>(CountUpTo(buckets, last)))
          << name << " le " << bound << " of " << Where();
    }
  }

  const Exposition& scrape_;
  Labels labels_;
  std::string name_;
  const json& truth_;
  uint32_t ranks_;
  Function function_;
  bool is_point_to_point_;
};

template <typename Visitor>
void ForEachCommunicator(const json& truth, Visitor visit) {
  for (const json& rank : truth["ranks"]) {
    for (const json& communicator : rank["communicators"]) visit(communicator);
  }
}

// Compares one dense histogram with the ground truth's sparse one.
template <typename Counts>
void ExpectBuckets(const Counts& counts, const json& truth, const std::string& where) {
  for (size_t i = 0; i < counts.size(); ++i) {
    EXPECT_EQ(counts[i], truth.value(std::to_string(i), uint64_t{0}))
        << "bucket " << i << " of " << where;
  }
}

// Pairs of function and size class that want a histogram.
int TimedSizes(const json& communicator) {
  int pairs = 0;
  for (const json& function : communicator["functions"]) {
    for (const json& size : function["sizes"]) pairs += size["timed_operations"] != 0 ? 1 : 0;
  }
  return pairs;
}

// Truth that was recorded before 1.3 has no durations by size.
void ExpectDurationsBySize(const collector::FunctionSnapshot& counts, const json& sizes,
                           const std::string& where) {
  for (size_t i = 0; i < kSizeClassCount; ++i) {
    const json size = sizes.value(std::to_string(kSizeClassBounds[i]), json::object());
    if (!size.contains("duration") || size["timed_operations"] == 0) continue;
    const collector::SizedDurations& sized = counts.duration_by_size[i];
    ASSERT_FALSE(sized.counts.empty()) << "size class " << i << " of " << where;
    ExpectBuckets(sized.counts, size["duration"],
                  "size class " + std::to_string(i) + " of " + where);
    EXPECT_EQ(sized.busy_ns, size["busy_ns"].get<uint64_t>()) << where;
  }
}

std::string Identity(uint64_t id, uint64_t rank) {
  char text[64];
  snprintf(text, sizeof(text), "%016llx/%llu", static_cast<unsigned long long>(id),
           static_cast<unsigned long long>(rank));
  return text;
}

}  // namespace

json ReadTruth(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  json truth = json::parse(file, nullptr, false);
  EXPECT_FALSE(truth.is_discarded()) << path;
  return truth;
}

void ExpectEqualsTruth(const Exposition& scrape, const json& truth) {
  std::set<std::pair<std::string, std::string>> expected, exported;
  ForEachCommunicator(truth, [&](const json& communicator) {
    const std::string id = communicator["id"],
                      rank = std::to_string(communicator["rank"].get<int>());
    const auto ranks = communicator["ranks"].get<uint32_t>();
    if (communicator["functions"].empty()) return;
    expected.emplace(id, rank);
    for (const auto& [function, counts] : communicator["functions"].items()) {
      FunctionComparison(scrape, {{"comm", id}, {"rank", rank}}, function, counts, ranks).Check();
    }
  });
  for (const char* name : {"nccl_collective_operations_total", "nccl_p2p_send_operations_total",
                           "nccl_p2p_recv_operations_total", "nccl_api_calls_total"}) {
    for (const Sample& sample : scrape.Find(name)) {
      if (sample.value > 0) exported.emplace(sample.labels.at("comm"), sample.labels.at("rank"));
    }
  }
  for (const auto& series : exported)
    EXPECT_TRUE(expected.count(series)) << "unknown: " << series.first << "/" << series.second;
}

void ExpectSegmentsEqualTruth(const std::string& segment_directory, const json& truth) {
  collector::Collector collector({.directories = {segment_directory}, .splits_durations = true});
  const auto snapshot = collector.Snapshot();
  std::map<std::string, const collector::CommunicatorSnapshot*> found;
  for (const collector::ProcessSnapshot& process : snapshot->processes) {
    for (const collector::CommunicatorSnapshot& communicator : process.communicators) {
      if (communicator.has_identity)
        found[Identity(communicator.id, communicator.rank)] = &communicator;
    }
  }
  ForEachCommunicator(truth, [&](const json& communicator) {
    if (communicator["functions"].empty()) return;
    const std::string where = Identity(
        std::stoull(communicator["id"].get<std::string>(), nullptr, 16), communicator["rank"]);
    ASSERT_TRUE(found.count(where)) << where;
    EXPECT_EQ(NameOf(found[where]->timing_source), communicator["timing_source"]) << where;
    const bool has_room_for_sizes = TimedSizes(communicator) <= kSizeHistograms;
    for (const auto& [function, expected] : communicator["functions"].items()) {
      const collector::FunctionSnapshot& counts =
          found[where]->functions[static_cast<size_t>(FunctionByName(function))];
      ExpectBuckets(counts.duration, expected["duration"], function + " duration on " + where);
      if (has_room_for_sizes)
        ExpectDurationsBySize(counts, expected["sizes"], function + " on " + where);
      ExpectBuckets(counts.bandwidth, expected["bandwidth"], function + " bandwidth on " + where);
      EXPECT_EQ(counts.bandwidth_sum_kib, expected["bandwidth_sum_kib"].get<uint64_t>())
          << function << " on " << where;
      uint64_t busy_ns = 0;
      for (const collector::SizeClassSnapshot& size : counts.sizes) busy_ns += size.busy_ns;
      EXPECT_EQ(busy_ns, expected["duration_sum_ns"].get<uint64_t>())
          << function << " on " << where;
    }
  });
}

uint64_t TotalOperations(const json& truth) {
  uint64_t total = 0;
  ForEachCommunicator(truth, [&](const json& communicator) {
    for (const auto& [function, expected] : communicator["functions"].items()) {
      for (const auto& [size, counts] : expected["sizes"].items())
        total += counts["operations"].get<uint64_t>();
    }
  });
  return total;
}

}  // namespace nccl_exporter
