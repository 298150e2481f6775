// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/late/busy_rates.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "proto/collective.h"

namespace nccl_exporter::exporter {
namespace {

// Members whose processes send and receive less than this share of the most are unlike.
constexpr double kAlikeShare = 0.9;

void Add(std::optional<double>& sum, double more) { sum = sum.value_or(0) + more; }

RankRates RatesOfRank(const RankOnNode& rank, const collector::CommunicatorKey& key,
                      const RanksWindow& window, const RanksWindow& arrivals) {
  RankRates rates{.rank = rank};
  const RankKey place{key, rank.communicator->rank};
  if (const auto found = window.ranks.find(place); found != window.ranks.end()) {
    const RankDelta& done = found->second;
    rates.steps = static_cast<double>(done.steps) / window.seconds;
    for (const auto& [kind, wait_ns] : done.step_waits_ns)
      rates.step_waits[kind] = static_cast<double>(wait_ns) / 1e9 / window.seconds;
    for (const TrafficDelta& delta : done.traffic) {
      const bool is_p2p = TraitsOf(delta.function).is_point_to_point;
      (is_p2p ? rates.p2p_operations : rates.timed_collectives) +=
          static_cast<double>(is_p2p ? delta.operations : delta.timed_operations) / window.seconds;
      if (delta.busy_ns == 0) continue;
      Add(rates.busy, delta.BusySeconds() / window.seconds);
      if (is_p2p) Add(rates.p2p_busy, delta.BusySeconds() / window.seconds);
    }
  }
  if (const auto found = arrivals.ranks.find(place); found != arrivals.ranks.end()) {
    rates.arrivals = found->second.arrivals;
    rates.lateness = static_cast<double>(rates.arrivals.lateness_ns) / 1e9 / arrivals.seconds;
  }
  return rates;
}

void AddTo(ProcessRates& process, const RankRates& rank) {
  process.busy += rank.busy.value_or(0);
  process.p2p_operations += rank.p2p_operations;
  if (rank.p2p_busy) Add(process.p2p_busy, *rank.p2p_busy);
}

// Communicators in which two processes have the same rank cannot be distinguished.
bool HasEachRankOnce(const CommunicatorOnNode& communicator) {
  return std::ranges::adjacent_find(communicator.ranks, {}, [](const RankOnNode& rank) {
           return rank.communicator->rank;
         }) == communicator.ranks.end();
}

// comm:nccl_p2p_operations:unlike.
bool IsPipeline(const std::vector<RankRates>& ranks, const std::vector<ProcessRates>& processes,
                const Thresholds& thresholds) {
  std::vector<double> operations, busy;
  for (const RankRates& rank : ranks) {
    const ProcessRates& process = processes[rank.process];
    if (process.p2p_operations > 0) operations.push_back(process.p2p_operations);
    if (process.p2p_operations == 0) {
      busy.push_back(0);
    } else if (process.p2p_busy) {
      busy.push_back(*process.p2p_busy);
    }
  }
  if (operations.empty()) return false;
  const auto [least, most] = std::ranges::minmax(operations);
  const bool are_alike = operations.size() == ranks.size() && least >= kAlikeShare * most;
  if (are_alike && ranks.size() != 2) return false;
  // Without the time of all of them, they are taken for stages.
  return busy.size() < ranks.size() || Quantile(0.5, busy) >= thresholds.straggler_threshold;
}

// Whether sends and receives take time in the communicator, so that a rank waits more than once per
// step.
bool ExchangesByP2p(const std::vector<RankRates>& ranks, const Thresholds& thresholds) {
  std::vector<double> busy;
  bool has_any = false;
  for (const RankRates& rank : ranks) {
    has_any = has_any || rank.p2p_operations > 0;
    if (rank.p2p_busy) busy.push_back(*rank.p2p_busy);
  }
  return has_any && (busy.empty() || Quantile(0.5, busy) >= thresholds.straggler_threshold);
}

// comm:nccl_steps:rate.
std::optional<double> StepsOf(const std::vector<RankRates>& ranks) {
  double most = 0;
  for (const RankRates& rank : ranks) most = std::max(most, rank.steps);
  return most > 0 ? std::optional(most) : std::nullopt;
}

}  // namespace

double Quantile(double share, std::vector<double> values) {
  std::ranges::sort(values);
  const double place = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(std::floor(place));
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (values[above] - values[below]) * (place - std::floor(place));
}

double UsualOf(const std::vector<double>& values) {
  return values.size() == 2 ? std::ranges::max(values) : Quantile(0.5, values);
}

NodeRates RatesOf(const collector::NodeSnapshot& node, const NodeHistory& history,
                  const Thresholds& times) {
  const RanksWindow window = history.RecentRanks(Seconds(times.window));
  const RanksWindow arrivals = history.RecentRanks(Seconds(times.arrivals_window()));
  NodeRates rates;
  if (window.seconds <= 0) return rates;

  std::map<GpuOfProcess, size_t> places;
  std::map<collector::CommunicatorKey, PeerRates> all;
  for (const CommunicatorOnNode& communicator : CommunicatorsOnNode(node)) {
    if (!HasEachRankOnce(communicator)) continue;
    PeerRates& peers = all[communicator.key];
    peers.key = communicator.key;
    peers.spans_nodes = SpansNodes(communicator);
    for (const RankOnNode& rank : communicator.ranks) {
      const auto place = places.try_emplace(rank.gpu(), places.size());
      rates.processes.resize(places.size());
      RankRates found = RatesOfRank(rank, communicator.key, window, arrivals);
      found.process = place.first->second;
      AddTo(rates.processes[found.process], found);
      peers.ranks.push_back(std::move(found));
    }
  }
  for (auto& [key, common] : all) {
    std::vector<RankRates> ranks = std::exchange(common.ranks, {});
    common.is_pipeline = IsPipeline(ranks, rates.processes, times);
    if (!ExchangesByP2p(ranks, times)) common.steps = StepsOf(ranks);
    std::vector<double> timed;
    for (const RankRates& rank : ranks) timed.push_back(rank.timed_collectives);
    common.median_timed_collectives = Quantile(0.5, timed);
    std::map<TimingSource, PeerRates> by_source;
    for (RankRates& rank : ranks) {
      PeerRates& peers =
          by_source.try_emplace(rank.rank.communicator->timing_source, common).first->second;
      peers.ranks.push_back(std::move(rank));
    }
    for (auto& [source, peers] : by_source) rates.peers.push_back(std::move(peers));
  }
  return rates;
}

}  // namespace nccl_exporter::exporter
