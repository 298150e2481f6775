// SPDX-License-Identifier: Apache-2.0
// AddSnapshotFamilies(), which turns a NodeSnapshot into the series of an exposition, up to the
// limit of series. For the thread that makes the scrape.
//
// A scrape holds at most `series_limit` samples, of which kSeriesForOthers are kept for
// comm="other". If a snapshot has more, the users (owners of the segments) share the limit. Each
// user gets an equal part of what users with smaller needs leave, so no user's communicators are
// folded because of another's.
//
// Within a user's share, the counters of the processes come first, then the communicators in the
// snapshot's order, older processes first. So a communicator keeps its series while younger ones
// come and go. The first communicator that does not fit is folded into comm="other" of its job, and
// so are all later ones of the same user. What does not fit even then is left out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "collector/node_snapshot.h"
#include "exporter/catalogue/metric_filter.h"
#include "exporter/exposition/exposition.h"
#include "exporter/series/departed_counts.h"
#include "exporter/series/function_groups.h"
#include "exporter/series/label_cache.h"

namespace nccl_exporter::exporter {

// Kept free for comm="other": room for one that uses all functions (530 samples).
inline constexpr size_t kSeriesForOthers = 700;

// State that one scrape leaves to the next. All scrapes have the same filter.
struct SeriesMemory {
  explicit SeriesMemory(const MetricFilter& filter = {}) : labels(filter), functions(filter) {}

  LabelCache labels;
  DepartedCounts departed;
  const FunctionGroups functions;
};

// Samples above the limit, by what happened to them.
struct SeriesDrops {
  uint64_t folded = 0;    // of communicators that are now part of comm="other"
  uint64_t left_out = 0;  // not in the scrape in any form

  bool operator==(const SeriesDrops&) const = default;
};

// Fills the catalogue's families of `exposition`, which keeps the snapshot alive. `memory` and the
// exposition are made with the same filter; with different ones, dropped labels stay or families
// are filled that are not served.
SeriesDrops AddSnapshotFamilies(std::shared_ptr<const collector::NodeSnapshot> snapshot,
                                size_t series_limit, SeriesMemory& memory, Exposition& exposition);

}  // namespace nccl_exporter::exporter
