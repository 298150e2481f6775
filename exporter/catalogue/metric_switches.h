// SPDX-License-Identifier: Apache-2.0
// What of the catalogue a daemon serves, and how finely: the flags --metrics.*.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "proto/buckets.h"

namespace nccl_exporter {

// Classic bounds of a histogram at most: with more, one communicator's histograms would not fit the room that is kept
// for comm="other". More is what native histograms are for.
inline constexpr size_t kMaxClassicBounds = 16;

// Name of all histograms together, in Disable().
inline constexpr std::string_view kHistograms = "histograms";

class MetricSwitches {
 public:
  // Take one value of a flag each. What is wrong with it, in words; empty if nothing is.
  std::string Disable(std::string_view pattern);          // a family, families by their beginning and *, kHistograms
  std::string DropLabel(std::string_view label);          // one of kDroppableLabels
  std::string SetDurationBounds(std::string_view list);   // seconds, by commas, or "none"
  std::string SetBandwidthBounds(std::string_view list);  // bytes per second, likewise
  std::string SetNativeSchema(std::string_view schema);   // 0 to 3, or "off"

  bool Serves(std::string_view family) const { return !disabled_.contains(family); }
  bool Keeps(std::string_view label) const { return !dropped_.contains(label); }

  // Classic bounds as native bucket indices of the segment's schema, ascending: any bound asked for is the segment's
  // nearest, so that counts are exact.
  const std::vector<int>& duration_bounds() const { return duration_bounds_; }
  const std::vector<int>& bandwidth_bounds() const { return bandwidth_bounds_; }

  // The finest schema of native histograms; nothing where they are off.
  std::optional<int> native_schema() const { return native_schema_; }

  // What the rules of deploy/prometheus need of what is switched off: families and labels by commas, or empty.
  std::string TakenFromRules() const;

 private:
  std::set<std::string_view> disabled_;  // names of the catalogue
  std::set<std::string_view> dropped_;   // likewise
  std::vector<int> duration_bounds_{kClassicDurationBounds.begin(), kClassicDurationBounds.end()};
  std::vector<int> bandwidth_bounds_{kClassicBandwidthBounds.begin(), kClassicBandwidthBounds.end()};
  std::optional<int> native_schema_ = DurationBuckets::kSchema;
};

}  // namespace nccl_exporter
