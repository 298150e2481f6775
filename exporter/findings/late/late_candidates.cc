// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/late/late_candidates.h"

#include <algorithm>
#include <optional>

#include "exporter/findings/thresholds.h"

namespace nccl_exporter::exporter {
namespace {

// A process that waits elsewhere for this share of the threshold is a victim. Half, since lateness
// may be counted more than once.
constexpr double kVictimShare = 0.5;
// A culprit waits less in all its communicators together, by this share of what it does here.
constexpr double kOwnShare = 0.5;
// A rank with fewer timed operations than this share of the median is not compared.
constexpr double kTimedShare = 0.9;
// Ranks of a communicator for each late one, at least; more late ones are unequal by design.
constexpr size_t kRanksPerLateRank = 8;
// Usual times vary by this share.
constexpr double kVaryingShare = 0.1;

// Judgement of the ranks of one communicator, in the order of PeerRates::ranks.
struct PeersFound {
  std::vector<double> busy;  // of those that have it
  bool is_compared = false;
  double median = 0;
  std::vector<std::optional<double>> deficit;  // of ranks that wait less than chance explains
  std::vector<bool> is_last;
  bool is_uneven = false;
  bool has_deficit = false;
  bool has_last = false;
  std::optional<double> least_busy;  // where a rank is late, or too few are here to say which
};

// Ranks of a communicator that are enough to know its median, if others are on other nodes.
constexpr size_t kLeastOfMany = 4;

bool HasEnough(const PeerRates& peers, size_t ranks) {
  return ranks >= kLeastOfMany || (ranks >= 2 && ranks == peers.key.ranks);
}

// comm_rank:nccl_wait_deficit:late.
void FindDeficits(const PeerRates& peers, const Thresholds& thresholds, PeersFound& found) {
  found.deficit.resize(peers.ranks.size());
  for (const RankRates& rank : peers.ranks) {
    if (rank.busy) found.busy.push_back(*rank.busy);
  }
  found.is_compared = HasEnough(peers, found.busy.size()) && peers.IsComparable();
  if (!found.is_compared) return;
  found.median = UsualOf(found.busy);
  const double chance = std::min(2 * (Quantile(0.9, found.busy) - found.median),
                                 6 * (found.median - Quantile(0.34, found.busy)));
  for (size_t i = 0; i < peers.ranks.size(); ++i) {
    if (!peers.ranks[i].busy) continue;
    const double deficit = found.median - *peers.ranks[i].busy;
    if (deficit <= thresholds.straggler_threshold) continue;
    found.is_uneven = true;
    if (deficit <= chance || deficit < kVaryingShare * peers.ranks[i].expected_busy) continue;
    found.deficit[i] = deficit;
    found.has_deficit = true;
  }
}

// Medians over the ranks that have a wait of the kind.
std::map<OperationKind, double> MedianStepWaits(const PeerRates& peers) {
  std::map<OperationKind, std::vector<double>> waits;
  for (const RankRates& rank : peers.ranks) {
    for (const auto& [kind, wait] : rank.step_waits) waits[kind].push_back(wait);
  }
  std::map<OperationKind, double> medians;
  for (const auto& [kind, of_ranks] : waits) medians[kind] = UsualOf(of_ranks);
  return medians;
}

// comm_rank:nccl_step_wait_deficit:rate: the largest deficit of one operation of each step. Nothing
// where it is small, or no wait of a step is known.
std::vector<std::optional<double>> CostsOf(const PeerRates& peers, const PeersFound& found,
                                           const Thresholds& thresholds) {
  const std::map<OperationKind, double> medians = MedianStepWaits(peers);
  std::vector<std::optional<double>> costs(peers.ranks.size());
  for (size_t i = 0; i < peers.ranks.size(); ++i) {
    if (!found.deficit[i]) continue;
    double cost = peers.steps ? 0 : *found.deficit[i];
    if (peers.steps) {
      for (const auto& [kind, wait] : peers.ranks[i].step_waits)
        cost = std::max(cost, medians.at(kind) - wait);
    }
    if (cost > thresholds.straggler_threshold) costs[i] = cost;
  }
  return costs;
}

// Share of the time that the others wait for a rank, by arrivals.
double CostOfArrivals(const PeerRates& peers, const RankRates& rank) {
  if (!peers.steps || rank.arrivals.compared == 0) return rank.lateness;
  return static_cast<double>(rank.arrivals.lateness_ns) / 1e9 /
         static_cast<double>(rank.arrivals.compared) * *peers.steps;
}

// comm_rank:nccl_last_arrivals:share.
void FindLastArrivers(const PeerRates& peers, const Thresholds& thresholds, PeersFound& found) {
  for (const RankRates& rank : peers.ranks) {
    const collector::ArrivalCounts& counts = rank.arrivals;
    const bool is_last = !peers.is_pipeline &&
                         counts.compared >= static_cast<uint64_t>(thresholds.least_operations) &&
                         static_cast<double>(counts.last) >
                             thresholds.last_arrival_share * static_cast<double>(counts.compared) &&
                         CostOfArrivals(peers, rank) > thresholds.straggler_threshold;
    found.is_last.push_back(is_last);
    found.has_last = found.has_last || is_last;
  }
}

// By process: how much longer it waits than the median of each communicator in which some rank may
// be late.
std::vector<double> LongerWaits(const NodeRates& rates, const std::vector<PeersFound>& found) {
  std::vector<double> longer(rates.processes.size(), 0);
  for (size_t p = 0; p < found.size(); ++p) {
    const PeerRates& peers = rates.peers[p];
    if (!found[p].is_compared || (!found[p].is_uneven && !peers.exceeds_usual)) continue;
    for (const RankRates& rank : peers.ranks) {
      if (rank.busy) longer[rank.process] += *rank.busy - found[p].median;
    }
  }
  return longer;
}

// comm_rank:nccl_process_wait_deficit:rate.
std::vector<double> ProcessDeficits(const PeerRates& peers,
                                    const std::vector<ProcessRates>& processes,
                                    const std::vector<double>& longer_waits) {
  std::vector<double> all, compared;
  for (const RankRates& rank : peers.ranks) {
    all.push_back(peers.exceeds_usual ? longer_waits[rank.process] : processes[rank.process].busy);
    if (rank.busy) compared.push_back(all.back());
  }
  const double median = compared.empty() ? 0 : UsualOf(compared);
  for (double& busy : all) busy = median - busy;
  return all;
}

// comm:nccl_busy_seconds:late_min.
void FindLeastBusy(const PeerRates& peers, const Thresholds& thresholds, PeersFound& found) {
  if (found.busy.empty()) return;
  const auto [least, most] = std::ranges::minmax(found.busy);
  const bool is_unclear =
      !HasEnough(peers, found.busy.size()) && least < most - thresholds.straggler_threshold;
  if (found.has_deficit || is_unclear) found.least_busy = least;
}

// process:nccl_wait_for_late:max, by process; and whether a process is not the last in a
// communicator in which another one of this node is.
struct Victims {
  std::vector<double> wait_for_late;
  std::vector<bool> another_is_last;
};

Victims VictimsOf(const NodeRates& rates, const std::vector<PeersFound>& found) {
  Victims victims{std::vector<double>(rates.processes.size(), 0),
                  std::vector<bool>(rates.processes.size(), false)};
  for (size_t p = 0; p < found.size(); ++p) {
    const PeerRates& peers = rates.peers[p];
    for (size_t i = 0; i < peers.ranks.size(); ++i) {
      const RankRates& rank = peers.ranks[i];
      if (found[p].has_last && !found[p].is_last[i]) victims.another_is_last[rank.process] = true;
      if (!peers.IsComparable() || found[p].deficit[i] || !rank.busy || !found[p].least_busy)
        continue;
      double& wait = victims.wait_for_late[rank.process];
      wait = std::max(wait, *rank.busy - *found[p].least_busy);
    }
  }
  return victims;
}

// Whether each rank waits for another node's, which this judge does not see: it is longer than its
// peers in communicators that span nodes.
std::vector<bool> WaitElsewhere(const NodeRates& rates, const PeerRates& peers, double least_wait) {
  std::vector<double> elsewhere(rates.processes.size(), 0);
  for (const PeerRates& other : rates.peers) {
    if (other.key == peers.key || !other.IsComparable() || !other.spans_nodes ||
        HasEnough(other, other.ranks.size()))
      continue;
    for (const RankRates& rank : other.ranks) elsewhere[rank.process] += rank.busy.value_or(0);
  }
  std::vector<double> of_ranks;
  for (const RankRates& rank : peers.ranks) of_ranks.push_back(elsewhere[rank.process]);
  const double median = Quantile(0.5, of_ranks);
  std::vector<bool> waits;
  for (const double seconds : of_ranks) waits.push_back(seconds - median > least_wait);
  return waits;
}

void AddCandidates(const NodeRates& rates, const PeerRates& peers, const PeersFound& found,
                   const Victims& victims, const std::vector<double>& longer_waits,
                   const Thresholds& thresholds, std::vector<LateCandidate>& candidates) {
  const double victims_wait = kVictimShare * thresholds.straggler_threshold;
  const auto costs = CostsOf(peers, found, thresholds);
  const std::vector<double> deficits = ProcessDeficits(peers, rates.processes, longer_waits);
  std::vector<bool> is_victim = WaitElsewhere(rates, peers, victims_wait);
  std::vector<bool> own;  // comm_rank:nccl_wait_deficit:own
  for (size_t i = 0; i < peers.ranks.size(); ++i) {
    const RankRates& rank = peers.ranks[i];
    if (victims.wait_for_late[rank.process] > victims_wait) is_victim[i] = true;
    own.push_back(costs[i] && deficits[i] > kOwnShare * *found.deficit[i] && !is_victim[i] &&
                  rank.timed_collectives >= kTimedShare * peers.median_timed_collectives);
  }
  const auto count = static_cast<size_t>(std::ranges::count(own, true));
  const bool are_few = count <= std::max<size_t>(found.busy.size() / kRanksPerLateRank, 1);
  for (size_t i = 0; i < peers.ranks.size(); ++i) {
    const RankRates& rank = peers.ranks[i];
    if (!rank.rank.process->is_alive) continue;
    const bool is_last_arriver = found.is_last[i] && !victims.another_is_last[rank.process] &&
                                 !is_victim[i] && !(rank.busy && deficits[i] < victims_wait) &&
                                 (!found.deficit[i] || own[i]);
    if (!found.deficit[i] && !is_last_arriver) continue;
    candidates.push_back({.communicator = peers.key,
                          .rank = rank.rank.communicator->rank,
                          .gpu = rank.rank.gpu(),
                          .measures = {.is_late = found.deficit[i].has_value(),
                                       .is_culprit = own[i],
                                       .is_straggler = own[i] && are_few,
                                       .is_last_arriver = is_last_arriver,
                                       .cost = own[i] ? *costs[i] : CostOfArrivals(peers, rank),
                                       .arrivals = rank.arrivals}});
  }
}

}  // namespace

LateJudgement JudgeLateRanks(const NodeRates& rates, const Thresholds& thresholds) {
  std::vector<PeersFound> found(rates.peers.size());
  for (size_t p = 0; p < found.size(); ++p) {
    FindDeficits(rates.peers[p], thresholds, found[p]);
    FindLastArrivers(rates.peers[p], thresholds, found[p]);
    FindLeastBusy(rates.peers[p], thresholds, found[p]);
  }
  const std::vector<double> longer_waits = LongerWaits(rates, found);
  const Victims victims = VictimsOf(rates, found);
  LateJudgement judgement;
  for (size_t p = 0; p < found.size(); ++p) {
    const PeerRates& peers = rates.peers[p];
    if (found[p].is_uneven) judgement.uneven.push_back(peers.key);
    if (found[p].has_deficit || found[p].has_last)
      AddCandidates(rates, peers, found[p], victims, longer_waits, thresholds,
                    judgement.candidates);
  }
  return judgement;
}

}  // namespace nccl_exporter::exporter
