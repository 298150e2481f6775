// SPDX-License-Identifier: Apache-2.0
// AddSnapshotFamilies(), which turns a snapshot and its book into the series of an exposition, up
// to the limit of series. For the thread that makes the scrape.
//
// A scrape holds at most `series_limit` samples, of which kSeriesForOthers are kept for
// comm="other". If a snapshot has more, the users (owners of the segments) share the limit. Each
// gets an equal part of what users with smaller needs leave: no user loses series because of
// another with more. Within a user's share, detail is lost first:
//   1. The alert series of its processes and communicators share it.
//   2. Detail shares what they leave: first that of processes, then that of communicators, each of
//      which is complete or has its alert series alone.
//
// At each of the two, communicators in use come first, then those of processes that have ended
// without finalizing them, then the finalized ones; older ones before younger ones. So a
// communicator keeps its series while younger ones come and go. One whose alert series do not fit
// is folded into comm="other" of its job. What does not fit even then is left out. The process of
// one in use says so: its rank is not missing (Metric::kProcessUnserved).
//
// Needs vary a little from scrape to scrape: a counter appears with its first event. A communicator
// at the limit would lose and get back all its detail each time. So one that lost series gets them
// back only if a part of its user's share stays free: see kReserveDivisor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "collector/node_snapshot.h"
#include "exporter/exposition/exposition.h"
#include "exporter/ledger/book.h"
#include "exporter/series/collect.h"
#include "exporter/series/function_labels.h"
#include "exporter/series/kept/kept_counts.h"
#include "exporter/series/labels/label_cache.h"
#include "exporter/series/metric_filter.h"
#include "proto/code_table.h"

namespace nccl_exporter::exporter {

// Kept free for comm="other": room for one that uses all functions (530 samples).
inline constexpr size_t kSeriesForOthers = 700;

// A communicator gets lost detail back if an eighth of its user's share stays free. The series of
// stalled communicators come and go more often, so there is always room for them.
inline constexpr size_t kReserveDivisor = 8;

// Detail of a communicator in a scrape.
enum class DetailLevel : uint8_t {
  kFolded,  // nothing: it is part of comm="other"
  kAlerts,  // the alert series
  kAll,
};

// State that one scrape leaves to the next of its kind. Scrapes of another kind see members at
// other times, and have other last counts of those that are gone.
struct ScrapeMemory {
  KeptCounts kept;
  std::map<SharedLabels, DetailLevel> reduced;  // communicators that lost detail
};

// State that one scrape leaves to the next. All scrapes have the same filter.
struct SeriesMemory {
  explicit SeriesMemory(const MetricFilter& filter = {},
                        const NewSetLimits& new_series = kNewSeriesSets)
      : labels(filter, new_series), functions(filter) {}

  LabelCache labels;
  const FunctionLabels functions;
  ScrapeMemory whole{.kept = KeptCounts(Histograms::kBySize), .reduced = {}};
  ScrapeMemory alerts{.kept = KeptCounts(Histograms::kNone), .reduced = {}};  // of alert series
};

// Effects of the limit on samples.
enum class SeriesLoss : uint8_t { kDetail, kFolded, kLeftOut, kNew, kCount };
inline constexpr size_t kSeriesLossCount = static_cast<size_t>(SeriesLoss::kCount);
inline constexpr CodeTable<SeriesLoss> kSeriesLosses{{
    {SeriesLoss::kDetail, "detail", "all series but those of alerts"},
    {SeriesLoss::kFolded, "folded", "all series of communicators, which are in comm=\"other\""},
    {SeriesLoss::kLeftOut, "left_out", "not in the scrape in any form"},
    {SeriesLoss::kNew, "new",
     "communicators in comm=\"other\" because their user has brought too many new ones; counted "
     "per communicator"},
}};
static_assert(IsInOrder(kSeriesLosses));

// Samples that a scrape lacks, by user. Users without losses are absent.
struct SeriesDrops {
  using Counts = std::array<uint64_t, kSeriesLossCount>;
  std::map<uint64_t, Counts> by_user;

  void Add(uint64_t uid, SeriesLoss loss, uint64_t samples) {
    if (samples != 0) by_user[uid][static_cast<size_t>(loss)] += samples;
  }
  uint64_t Of(SeriesLoss loss) const {
    uint64_t sum = 0;
    for (const auto& [uid, counts] : by_user) sum += counts[static_cast<size_t>(loss)];
    return sum;
  }
};

// Fills the catalogue's families of `exposition`, which keeps the book alive. `memory` and the
// exposition are made with the same filter and the same `collect`. With different filters, dropped
// labels stay, or families are filled that are not served.
SeriesDrops AddSnapshotFamilies(std::shared_ptr<const Book> book, size_t series_limit,
                                SeriesMemory& memory, Exposition& exposition,
                                Collect collect = Collect::kWhole);

}  // namespace nccl_exporter::exporter
