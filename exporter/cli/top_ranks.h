// SPDX-License-Identifier: Apache-2.0
// The rows of `nccl-exporter top`: ranks with what they do, in the order of the screen. Pure
// functions, for any thread.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/findings/node_judge.h"
#include "exporter/ledger/local_communicators.h"
#include "exporter/ledger/node_history.h"
#include "proto/code_table.h"

namespace nccl_exporter::exporter {

// Order of the ranks. The key `s` selects the next one.
enum class TopSort : uint8_t { kRank, kAge, kLate, kBehind, kCount };
inline constexpr CodeTable<TopSort> kTopSorts{{
    {TopSort::kRank, "rank", "by rank"},
    {TopSort::kAge, "age", "longest in flight first"},
    {TopSort::kLate, "late", "most often the last to enter first"},
    {TopSort::kBehind, "behind", "furthest behind first"},
}};
static_assert(IsInOrder(kTopSorts));

// Which row it is, whatever the order: file and slot.
struct TopRankId {
  collector::FileKey file;
  uint32_t slot = 0;

  auto operator<=>(const TopRankId&) const = default;
};

// A rank of a communicator in one row. Points into the snapshot and into the communicators that it
// was made of, which must outlive it.
struct TopRank {
  const CommunicatorOnNode* of;
  const RankOnNode* rank;
  std::string communicator;  // as people tell it from the others
  std::string state = {};    // empty: nothing to say
  ArrivalWindow arrivals;
  NetworkWindow network;
  double age_seconds = -1;  // of the oldest operation in flight; -1: none, or not known
  uint64_t behind = 0;      // collectives started less than by the rank on this node with the most
  double last_share = -1;  // of compared operations that it entered last, 0 to 1; -1: none compared
  bool is_culprit = false;  // of a finding that costs time
  bool is_waiting = false;  // for a culprit

  TopRankId id() const;
  // After the first rank on the node, per compared operation; not a number if there is none.
  double MeanLatenessSeconds() const;
  std::string LastText() const;  // "83 %"; "-" if nothing was compared
  std::string LateText() const;  // "1.20 ms"; likewise
};

struct TopRanks {
  std::vector<TopRank> ranks;
  uint64_t folded = 0;  // communicators of one rank that do nothing
};

// A name for each communicator, in their order, with members where names are equal: "pp GPU 3,7".
// If the members are equal as well, the id follows. Members are those on this node.
std::vector<std::string> CommunicatorNames(const std::vector<CommunicatorOnNode>& communicators);

// Culprits first, then by `sort`; by rank, those that wait for them come second. Equal ones stand
// by communicator and rank, so that rows keep their places. Ranks that are alone in their
// communicator, with nothing in flight and in no finding, are folded.
TopRanks RanksOfTop(const std::vector<CommunicatorOnNode>& communicators,
                    const collector::NodeSnapshot& node, const NodeHistory& history,
                    const Judgement& judgement, TopSort sort);

// Leaves those that have all words of `filter`: "rank=3", "gpu=3", "pid=5829", a number that is one
// of these, or a part of the communicator's name or of the state.
void Filter(std::string_view filter, std::vector<TopRank>& ranks);

}  // namespace nccl_exporter::exporter
