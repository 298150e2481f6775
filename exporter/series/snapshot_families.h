// SPDX-License-Identifier: Apache-2.0
// NodeSnapshot -> series of an exposition, under the cap of series.
//
// A scrape holds at most `series_limit` samples, of which kSeriesForOthers are kept for comm="other". Where more are
// wanted, the users (owners of the segments) share: each gets an equal part of what those who need less leave, so that
// no user's communicators are folded because of another's. Within a user's share, the counters of the processes come
// first, then the communicators in the snapshot's order (older processes first), so that a communicator keeps its
// series while younger ones come and go. The first one that does not fit is folded into comm="other" of its job, and so
// are all of the user after it. What even so does not fit is left out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "collector/node_snapshot.h"
#include "exporter/exposition/exposition.h"
#include "exporter/series/series_memory.h"

namespace nccl_exporter {

// Kept free for comm="other": room for one that uses all functions (530 samples).
inline constexpr size_t kSeriesForOthers = 700;

// Samples that a scrape would have had without the cap, by what became of them.
struct SeriesDrops {
  uint64_t folded = 0;    // of communicators that are now part of comm="other"
  uint64_t left_out = 0;  // not in the scrape in any form

  bool operator==(const SeriesDrops&) const = default;
};

// Fills the catalogue's families of `exposition`, which keeps the snapshot alive. `memory` and the exposition are made
// with the same switches.
SeriesDrops AddSnapshotFamilies(std::shared_ptr<const NodeSnapshot> snapshot, size_t series_limit, SeriesMemory& memory,
                                Exposition& exposition);

}  // namespace nccl_exporter
