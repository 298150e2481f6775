// SPDX-License-Identifier: Apache-2.0
// CommunicatorSums, counts of communicators that share a label set, from one scrape to the next.
// For the thread that makes the scrape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/ledger/book.h"
#include "exporter/series/series_group.h"

namespace nccl_exporter::exporter {

// Sums of a user beyond the first of each label set, which differ in their number of ranks. Where
// `comm` is dropped, eight GPUs with communicators of five sizes need 32. A segment may claim
// another number of ranks at each scrape. Beyond the limit, counts are added to the sum with the
// next higher number of ranks: bus bytes grow with it, so no series decreases.
inline constexpr size_t kMostFurtherSums = 256;

class CommunicatorSums {
 public:
  struct Sum {
    collector::CommunicatorSnapshot communicator;
    std::optional<RankCounts> counts;
  };

  bool empty() const { return sums_.empty(); }

  // The sum of a label set for communicators with so many ranks. A new one counts since
  // `created_realtime_ns`. The first call for a label set decides whose it is.
  Sum& Of(const SharedLabels& labels, uint64_t uid, uint64_t ranks, int64_t created_realtime_ns);

  // Appends the sums of a label set. They are valid until they change.
  void AppendTo(const SharedLabels& labels, std::vector<GroupMember>& members) const;

  // Forgets all others.
  void KeepOnly(const std::set<SharedLabels>& labels);

 private:
  struct Sums {
    uint64_t uid = 0;
    // By number of ranks, on which bus bytes depend.
    std::map<uint64_t, Sum> by_ranks;
  };

  std::map<SharedLabels, Sums> sums_;
  std::map<uint64_t, size_t> further_;  // sums beyond the first of each label set, by user
};

}  // namespace nccl_exporter::exporter
