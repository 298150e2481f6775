// SPDX-License-Identifier: Apache-2.0
// OtherCounts, what comm="other" of each job has counted. For the thread that makes the scrape.
//
// A communicator is folded into comm="other" and gets its series back as others come and go. It has
// the counts of its whole life. A sum of these would rise by them, and fall again, which PromQL
// takes for a reset. So each scrape adds what the present members have counted since the scrape
// before, also if they had series of their own in that one.
//
// If the snapshot before lacks a member, its counts are new if it was created since. Else its past
// is not known, and not counted. So a sum starts at 0 and never decreases. PromQL takes a start at
// 0 after a restart of the daemon as it is.
//
// A sum is kept while the snapshots have a process of its job. While there are sums, the snapshot
// before the present one stays in memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>

#include "collector/node_snapshot.h"
#include "exporter/ledger/book.h"
#include "exporter/series/kept/communicator_sums.h"
#include "exporter/series/kept/member_key.h"
#include "exporter/series/series_group.h"

namespace nccl_exporter::exporter {

// Between a communicator's creation and the first snapshot that has it, at most: its initialization
// on the GPU, and a look through the directories.
inline constexpr int64_t kLatestSightNs = 5'000'000'000;

// Per scrape: Begin(), Count() for each job with members, End(). If a scrape fails before its end,
// the next one does not count what the failed one has not.
class OtherCounts {
 public:
  void Begin(std::shared_ptr<const Book> book);

  // Adds what the members have counted. Returns their group with the sums in place of them, valid
  // until the next Begin().
  SeriesGroup Count(const SeriesGroup& other);

  // Forgets the sums of other jobs. `labels`: of comm="other", of all processes in the snapshot.
  void End(const std::set<SharedLabels>& labels);

 private:
  using Key = decltype(MemberKey({}, {}));

  struct Counts {
    const collector::CommunicatorSnapshot* communicator = nullptr;
    const RankCounts* counts = nullptr;  // null: the book has none
  };

  // The counts from which on those of the member are new.
  Counts Before(const GroupMember& member) const;

  CommunicatorSums sums_;
  std::shared_ptr<const Book> latest_;  // null: there are no sums
  std::shared_ptr<const Book> before_;  // null: none is known
  std::map<Key, Counts> communicators_before_;
};

}  // namespace nccl_exporter::exporter
