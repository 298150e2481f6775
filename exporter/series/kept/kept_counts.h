// SPDX-License-Identifier: Apache-2.0
// KeptCounts, what communicators and processes with the same labels have counted together, those
// that are gone included. For the thread that makes the scrape.
//
// If a sum drops when one of its members goes, PromQL takes this for a reset and counts the rest of
// the sum once more: rate() would show a peak that never happened. So each scrape adds to a sum
// what its members have counted since the scrape before. There are two kinds of sums:
//   - Where several members share a label set, a member adds all that it has counted when it
//     comes. The sum is kept until the last member is gone and the series ends.
//   - A communicator is folded into comm="other" and gets its series back as others come and go. It
//     has the counts of its whole life, by which the sum would rise and fall. So what it has
//     counted since the scrape before is added, also if it had series of its own in that one. If
//     the snapshot before lacks it, its counts are new if it was created since. Else its past is
//     not known, and not counted: the sum starts at 0, which PromQL takes as it is after a restart
//     of the daemon. It is kept while the snapshots have a process of its job.
//
// Only sums have a cost: while there are some, the book before the present one stays in memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <tuple>

#include "collector/node_snapshot.h"
#include "exporter/ledger/book.h"
#include "exporter/series/series_group.h"

namespace nccl_exporter::exporter {

// Numbers of ranks of a user beyond the first of each label set, by which timed bytes are kept.
// Where `comm` is dropped, eight GPUs with communicators of five sizes need 32. A segment may claim
// another number at each scrape. Beyond the limit, bytes are added to those of the next higher
// number: bus bytes grow with it, so no series decreases.
inline constexpr size_t kMostFurtherRanks = 256;

// Counts of a process, or of those with the same labels.
struct ProcessSum {
  std::array<uint64_t, kLossCount> losses{};
  std::array<uint64_t, 2> chained{};         // callbacks of a chained plugin, and their ns
  std::optional<ProcessCounts> counts = {};  // without progress
  int64_t since_realtime_ns = 0;             // start of the first
};

// Histograms of a sum. Those of comm="other" are never by size.
enum class Histograms : uint8_t { kNone, kOfAllSizes, kBySize };

// Per scrape: Begin(), the others for each label set, End(). If a scrape fails before its end, the
// next one does not count what the failed one has not. No sum counts beyond its type's maximum, and
// no histogram beyond collector::kMostHistogramCount.
class KeptCounts {
 public:
  explicit KeptCounts(Histograms histograms = Histograms::kBySize) : histograms_(histograms) {}

  void Begin(std::shared_ptr<const Book> book);

  // Fills what the group has counted: sums, if several members share or have shared its labels.
  // They are valid until the next Begin().
  void CountShared(SeriesGroup& group);
  // The sums of comm="other" in place of its members, valid until the next Begin().
  SeriesGroup CountOther(const SeriesGroup& other);
  ProcessSum CountShared(const SharedLabels& labels,
                         std::span<const collector::ProcessSnapshot* const> members);

  // Forgets sums of label sets that were not counted in this scrape, but for `others`: the labels
  // of comm="other" of all processes in the snapshot.
  void End(const std::set<SharedLabels>& others);

 private:
  // Identities of a process and of a communicator in two snapshots. A file system may give the
  // inode number of a removed file to the next one: the time of start distinguishes them.
  using ProcessKey = std::tuple<collector::FileKey, int64_t>;
  using CommunicatorKey = std::tuple<collector::FileKey, uint32_t, uint64_t, uint64_t, uint64_t>;
  static CommunicatorKey KeyOf(const GroupMember& member);

  struct Sum {
    uint64_t uid = 0;  // of the first member
    collector::CommunicatorSnapshot communicator;
    std::optional<RankCounts> counts;
    TimedByRanks timed_by_ranks;
    std::set<CommunicatorKey> members;  // of the latest scrape; not of comm="other"
    uint64_t counted_in = 0;            // number of the latest scrape
  };
  struct ProcessSums {
    ProcessSum sum;
    std::map<ProcessKey, ProcessSum> members;  // their counts at the latest scrape
    uint64_t counted_in = 0;
  };

  // A new sum counts since `created_realtime_ns`.
  Sum& SumOf(const SeriesGroup& group, int64_t created_realtime_ns);
  // Adds what the member has counted since `before`.
  void Add(const GroupMember& member, const GroupMember& before, Histograms histograms, Sum& sum);
  TimedBytes& TimedFor(uint64_t ranks, Sum& sum);
  static void Fill(const Sum& sum, SeriesGroup& group);
  // The counts from which on those of a member of comm="other" are new.
  GroupMember BeforeFolded(const GroupMember& member) const;

  const Histograms histograms_;
  std::map<SharedLabels, Sum> sums_;
  std::map<SharedLabels, ProcessSums> process_sums_;
  uint64_t scrape_ = 0;  // number of this one
  std::map<uint64_t, size_t>
      further_;  // numbers of ranks beyond the first of each label set, by user
  std::shared_ptr<const Book> latest_;  // null: there are no sums
  std::shared_ptr<const Book> before_;  // null: none is known
  std::map<CommunicatorKey, GroupMember> communicators_before_;
};

}  // namespace nccl_exporter::exporter
