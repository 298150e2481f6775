// SPDX-License-Identifier: Apache-2.0
// Cardinality, the series and bytes of a node's scrape, for the tool `cardinality`. The encoders
// of the daemon write the scrape bodies that are counted; nothing is estimated. Pure functions, for
// any thread.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "exporter/exposition/negotiation.h"
#include "exporter/ledger/book.h"
#include "exporter/series/collect.h"
#include "exporter/series/metric_filter.h"
#include "exporter/series/snapshot_families.h"

namespace nccl_exporter::exporter {

inline constexpr size_t kFormatCount = 3;  // of Format

// One family in the scrape. Bytes are those that the family adds to a body, uncompressed; a family
// compresses no better alone than in a body, so there is no compressed size of one.
struct FamilyCost {
  std::string name;
  size_t classic_series = 0;  // in text and OpenMetrics: one per bucket
  size_t native_series = 0;   // in protobuf with native histograms: one per histogram
  std::array<size_t, kFormatCount> bytes{};
};

// A whole body, before and after gzip as the daemon compresses it.
struct BodyCost {
  size_t bytes = 0;
  size_t compressed_bytes = 0;
};

// Series are samples as Prometheus stores them: a classic histogram has one per bound, and +Inf,
// sum and count. The limit of a daemon (kSeriesLimit) counts classic ones in every format.
struct Cardinality {
  std::vector<FamilyCost> families;  // those with series
  size_t classic_series = 0;
  size_t native_series = 0;
  std::array<BodyCost, kFormatCount> bodies{};  // by Format
  SeriesDrops drops;                            // series of this node that the limit drops
};

// The cost of the scrapes of a daemon that serves this book, with its own metrics, or of the
// parts that they collect. Its snapshot must have durations by size where the filter splits them
// (CollectorOptions); without them their series are counted as one. About ten times the time of a
// scrape: each family is encoded alone.
Cardinality CardinalityOf(const std::shared_ptr<const Book>& book, const MetricFilter& filter,
                          Collect collect = Collect::kWhole);

// The cardinality as a table, with the saving of each further flag, and the families that the
// shipped rules miss. Savings are in per cent of the classic and of the native series. The twelve
// largest are shown, and none below 1 %. A scrape is made for each flag, so a full node takes
// seconds.
std::string CardinalityText(const std::shared_ptr<const Book>& book, const MetricFilter& filter,
                            Collect collect = Collect::kWhole);

}  // namespace nccl_exporter::exporter
