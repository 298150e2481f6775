// SPDX-License-Identifier: Apache-2.0
// RankView, all that a person sees of a rank of this node: `top`, `inflight` and the page show the
// same. Pure functions, for any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/findings/node_judge.h"
#include "exporter/ledger/local_communicators.h"
#include "exporter/ledger/node_history.h"
#include "exporter/text/text_table.h"

namespace nccl_exporter::exporter {

// Points into the snapshot and into the communicator that it was made of, which must outlive it.
struct RankView {
  const CommunicatorOnNode* of;
  const RankOnNode* rank;
  std::string communicator = {};  // its name among those of the node
  std::string state = {};         // by findings and process; empty: nothing to say
  RankWindow recent = {};
  double age_seconds = -1;  // of the oldest operation in flight; -1: none, or not known
  uint64_t behind = 0;      // collectives started less than by the rank on this node with the most
  double last_share = -1;   // of compared operations that it entered last, 0 to 1; -1: none
  bool is_late = false;     // by a finding
  bool is_culprit = false;  // of a finding that costs time
  bool is_waiting = false;  // for a culprit

  // After the first rank on the node, per compared operation; not a number if there is none.
  double MeanLatenessSeconds() const;
  std::string LastText() const;  // "83 %"; "-" if nothing was compared
  std::string LateText() const;  // "1.20 ms"; likewise
};

RankView RankViewOf(const CommunicatorOnNode& of, const RankOnNode& rank, int64_t now_ns,
                    const NodeHistory& history, const Judgement& judgement);

struct RankViews {
  std::vector<RankView> ranks;
  uint64_t folded = 0;  // communicators of one rank that do nothing
};

// Culprits first, then those that wait for them. Equal ones stand by communicator and rank, so that
// rows keep their places. Ranks that are alone in their communicator, with nothing in flight and in
// no finding, are folded.
RankViews RankViewsOf(const std::vector<CommunicatorOnNode>& communicators, int64_t now_ns,
                      const NodeHistory& history, const Judgement& judgement);

enum class RankColumns : uint8_t { kTop, kInFlight };

// A row for each rank (rank_table.cc). Findings name global ranks: they are shown where they are
// other numbers.
TextTable RankTable(const std::vector<RankView>& ranks, RankColumns columns, int64_t now_ns);

// Whether the ranks have global ranks, and one of these is another number than the rank.
bool HaveOtherNumbers(const std::vector<RankOnNode>& ranks);

// A name for each communicator, in their order, with members where names are equal: "pp GPU 3,7".
// If the members are equal as well, the id follows. Members are those on this node.
std::vector<std::string> CommunicatorNames(const std::vector<CommunicatorOnNode>& communicators);

// Puts those of findings first, by the first finding about each.
void PutFoundFirst(const Judgement& judgement, std::vector<CommunicatorOnNode>& communicators);

}  // namespace nccl_exporter::exporter
