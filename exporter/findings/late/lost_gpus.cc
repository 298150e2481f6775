// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "exporter/findings/late/late_candidates.h"
#include "proto/timing_source.h"

namespace nccl_exporter::exporter {
namespace {

using Waits = std::vector<std::optional<double>>;  // by the order of PeerRates::ranks

// Least wait, if the median is longer by more than `least_wait`.
std::optional<double> LeastOfUneven(const Waits& waits, double least_wait) {
  std::vector<double> known;
  for (const std::optional<double>& wait : waits) {
    if (wait) known.push_back(*wait);
  }
  if (known.empty()) return std::nullopt;
  const double least = std::ranges::min(known);
  if (least >= Quantile(0.5, std::move(known)) - least_wait) return std::nullopt;
  return least;
}

// comm_rank_kind:nccl_wait_seconds:rate: by collective and size across nodes, else all together.
std::vector<Waits> WaitsOf(const PeerRates& peers, double least_wait) {
  std::vector<Waits> waits(1);
  for (const RankRates& rank : peers.ranks) waits.front().push_back(rank.busy);
  if (!LeastOfUneven(waits.front(), least_wait)) return {};
  if (!peers.steps) return waits;
  std::map<OperationKind, Waits> by_kind;
  for (size_t i = 0; i < peers.ranks.size(); ++i) {
    for (const auto& [kind, wait] : peers.ranks[i].step_waits) {
      Waits& of_kind = by_kind[kind];
      of_kind.resize(peers.ranks.size());
      of_kind[i] = wait;
    }
  }
  waits.clear();
  for (auto& [kind, of_kind] : by_kind) waits.push_back(std::move(of_kind));
  return waits;
}

// comm_rank:nccl_waiting_gpu_seconds:each.
Waits LostByRank(const PeerRates& peers, double least_wait) {
  Waits lost(peers.ranks.size());
  for (const Waits& waits : WaitsOf(peers, least_wait)) {
    const std::optional<double> least = LeastOfUneven(waits, least_wait);
    if (!least) continue;
    for (size_t i = 0; i < waits.size(); ++i) {
      if (waits[i]) lost[i] = std::max(lost[i].value_or(0), *waits[i] - *least);
    }
  }
  return lost;
}

bool IsTimed(const PeerRates& peers) {
  return HasDurations(peers.ranks.front().rank.communicator->timing_source);
}

// Waits of a GPU: those that follow each other add up, of those beside the computation the longest
// counts.
struct GpuLoss {
  double in_line = 0;
  double beside = 0;
  RankKey beside_for = {};  // that the longest one waits for
};

}  // namespace

std::map<JobKey, LostGpus> LostGpusOf(const NodeRates& rates, const Thresholds& thresholds) {
  std::map<collector::CommunicatorKey, size_t> sources;
  for (const PeerRates& peers : rates.peers) sources[peers.key] += IsTimed(peers) ? 1 : 0;
  std::vector<GpuLoss> losses(rates.processes.size());
  std::map<JobKey, std::set<size_t>> gpus;
  std::map<JobKey, LostGpus> jobs;
  for (const PeerRates& peers : rates.peers) {
    for (const RankRates& rank : peers.ranks) {
      if (rates.processes[rank.process].busy > 0) gpus[JobKeyOf(peers.key)].insert(rank.process);
    }
    // Times of several sources are not compared.
    if (!IsTimed(peers) || sources[peers.key] > 1 || (peers.is_pipeline && !peers.steps)) continue;
    const Waits lost = LostByRank(peers, thresholds.least_wait);
    const auto least = std::ranges::min_element(lost, {}, [](const std::optional<double>& of_rank) {
      return of_rank.value_or(std::numeric_limits<double>::infinity());
    });
    const RankRates& waited = peers.ranks[static_cast<size_t>(least - lost.begin())];
    const RankKey waited_for{peers.key, waited.rank.communicator->rank};
    for (size_t i = 0; i < lost.size(); ++i) {
      GpuLoss& loss = losses[peers.ranks[i].process];
      const double seconds = lost[i].value_or(0);
      if (seconds > 0 && !peers.steps) {
        loss.in_line += seconds;
        jobs[JobKeyOf(peers.key)].by_rank[waited_for] += seconds;
      } else if (seconds > loss.beside) {
        loss.beside = seconds;
        loss.beside_for = waited_for;
      }
    }
  }
  for (const auto& [job, of_job] : gpus) {
    LostGpus& sum = jobs[job];
    sum.gpus = of_job.size();
    for (const size_t gpu : of_job) {
      const GpuLoss& loss = losses[gpu];
      sum.lost += std::min(loss.in_line + loss.beside, 1.0);
      if (loss.beside > 0) sum.by_rank[loss.beside_for] += loss.beside;
    }
  }
  std::erase_if(jobs, [&](const auto& entry) { return !gpus.contains(entry.first); });
  return jobs;
}

}  // namespace nccl_exporter::exporter
