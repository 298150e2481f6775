// SPDX-License-Identifier: Apache-2.0
// MetricFilter, the flags --metrics.*: which families, labels and buckets of the catalogue a daemon
// serves. It is set before other threads begin, and then any thread may read it.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "exporter/exposition/exposition.h"
#include "exporter/series/collect.h"
#include "proto/buckets.h"

namespace nccl_exporter::exporter {

// Name of all histograms together, in Disable().
inline constexpr std::string_view kHistograms = "histograms";

class MetricFilter {
 public:
  // Each takes one value of a flag and returns what is wrong with it, or an empty text.
  std::string Disable(
      std::string_view pattern);  // a family, families by their beginning and *, kHistograms
  std::string DropLabel(std::string_view label);          // one of kDroppableLabels
  std::string SetClassicBuckets(std::string_view state);  // "on" or "off"
  std::string SetNativeSchema(std::string_view schema);   // 0 to 3, or "off"
  void SplitDurations() { splits_durations_ = true; }
  void PutUserLabelsEverywhere() { has_user_labels_everywhere_ = true; }

  bool Serves(std::string_view family) const { return !disabled_.contains(family); }
  bool Keeps(std::string_view label) const { return !dropped_.contains(label); }

  // Whether histograms have the classic buckets of proto/buckets.h.
  bool has_classic_buckets() const { return has_classic_buckets_; }

  // The finest schema of native histograms; nothing if they are off.
  std::optional<int> native_schema() const { return native_schema_; }

  // Whether histograms of durations have the label `size`, if it is kept.
  bool splits_durations() const { return splits_durations_ && Keeps("size"); }

  // Whether the labels of NCCL_EXPORTER_LABELS are on every series of the job, and not only on
  // nccl_rank_info.
  bool has_user_labels_everywhere() const { return has_user_labels_everywhere_; }

  // Families and labels that are switched off and that the rules of deploy/prometheus need,
  // separated by commas.
  std::string TakenFromRules() const;

 private:
  std::set<std::string_view> disabled_;  // names of the catalogue
  std::set<std::string_view> dropped_;   // likewise
  bool has_classic_buckets_ = true;
  std::optional<int> native_schema_ = DurationBuckets::kSchema;
  bool splits_durations_ = false;
  bool has_user_labels_everywhere_ = false;
};

// All families of the catalogue without series, in its order and indexed by Metric. Histograms have
// the segment's scale with the filter's buckets and resolution. Families that are disabled or
// outside of `collect` take no series and have no scale.
Exposition ExpositionOfCatalogue(const MetricFilter& filter = {},
                                 Collect collect = Collect::kWhole);

}  // namespace nccl_exporter::exporter
