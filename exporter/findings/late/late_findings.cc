// SPDX-License-Identifier: Apache-2.0
// LateFindings(), late ranks in sentences.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "exporter/findings/late_ranks.h"
#include "exporter/findings/words.h"
#include "exporter/ledger/local_communicators.h"

namespace nccl_exporter::exporter {
namespace {

struct FoundLateRank {
  const LateRank* late;
  const CommunicatorOnNode* communicator;
  const RankOnNode* rank;
};

std::string NameOf(const FoundLateRank& found) {
  return CommunicatorText(found.communicator->key.id, found.rank->communicator->name);
}

constexpr double kLeastShown = 0.05;  // GPUs: less is rounded to 0.0

std::string Percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

// "83 %": the part of the compared operations that it entered last.
std::string LastShare(const collector::ArrivalCounts& arrivals) {
  return fmt::format("{:.0f} %", 100 * static_cast<double>(arrivals.last) /
                                     static_cast<double>(arrivals.compared));
}

std::string CostText(const LostGpus& lost) {
  if (lost.lost <= 0) return "";
  return fmt::format("waiting costs {} GPUs of {} on this node",
                     lost.lost < kLeastShown ? "less than 0.1" : fmt::format("{:.1f}", lost.lost),
                     lost.gpus);
}

// The effect on the others: the value of NCCLStragglerRank, or that of NCCLLastArriver.
std::string EffectText(const FoundLateRank& found) {
  const LateMeasures& measures = found.late->measures;
  if (measures.is_straggler)
    return fmt::format("it makes the other ranks of {} wait {} of the time", NameOf(found),
                       Percent(measures.cost));
  return fmt::format("it is the last on this node to enter {} of the operations of {}",
                     LastShare(measures.arrivals), NameOf(found));
}

void AddEvidence(const FoundLateRank& found, const Thresholds& times, int64_t now_realtime_ns,
                 Finding& finding) {
  const LateMeasures& measures = found.late->measures;
  auto& evidence = finding.evidence;
  if (const collector::ArrivalCounts& arrivals = measures.arrivals; arrivals.compared != 0) {
    const double lateness_seconds =
        static_cast<double>(arrivals.lateness_ns) / 1e9 / static_cast<double>(arrivals.compared);
    evidence.emplace_back("last to enter",
                          LastShare(arrivals) + " of " + CountText(arrivals.compared, "operation"));
    evidence.emplace_back("late by", DurationText(lateness_seconds) + " on average");
    finding.numbers.emplace_back("lateness_seconds", lateness_seconds);
    finding.numbers.emplace_back(
        "last_share", static_cast<double>(arrivals.last) / static_cast<double>(arrivals.compared));
    evidence.emplace_back("arrivals of the last", DurationText(Seconds(times.arrivals_window())));
  }
  if (measures.is_straggler) {
    evidence.emplace_back("waits less than the median rank",
                          Percent(measures.cost) + " of the time in " + NameOf(found));
    evidence.emplace_back("times of the last", DurationText(Seconds(times.window)));
    finding.numbers.emplace_back("lost_share", measures.cost);
  }
  evidence.emplace_back("found late",
                        fmt::format("in {} of the last {} judgements", found.late->late_judgements,
                                    times.late_for() / times.interval + 1));
  // It stays for a while, with the numbers of that moment.
  if (now_realtime_ns - found.late->found_realtime_ns > times.interval.count())
    evidence.emplace_back("last found late", ClockText(found.late->found_realtime_ns));
}

// `all` are of one GPU of a process. The first one is the subject of the headline.
Finding FindingOf(const std::vector<FoundLateRank>& all, const Thresholds& times,
                  int64_t now_realtime_ns) {
  const FoundLateRank& worst = all.front();
  const LateRank& late = *worst.late;
  Finding finding = FindingAbout(FindingKind::kLateRank, Severity::kWarning,
                                 worst.communicator->key, *worst.rank);
  finding.since_realtime_ns = late.since_realtime_ns;
  const bool are_global = HaveGlobalRanks(worst.communicator->ranks);
  finding.culprits.push_back(FoundRankOf(*worst.rank, Standing::kLate, are_global));
  for (const RankOnNode& rank : worst.communicator->ranks) {
    if (rank.communicator->rank == late.rank) continue;
    if (finding.waiting.size() == kMostFoundRanks) {
      ++finding.more_waiting;
    } else {
      finding.waiting.push_back(FoundRankOf(rank, Standing::kWaits, are_global));
    }
  }
  for (const FoundLateRank& other : all)
    finding.since_realtime_ns = std::min(finding.since_realtime_ns, other.late->since_realtime_ns);

  const FoundRank& culprit = finding.culprits.front();
  finding.headline = fmt::format("{} waits for {} since {}: {}.", Capital(finding.job),
                                 RankText(culprit, NameOf(worst)),
                                 ClockText(finding.since_realtime_ns), EffectText(worst));
  finding.cost = CostText(late.lost);
  if (!finding.cost.empty())
    finding.numbers = {{"lost_gpus", late.lost.lost}, {"gpus", late.lost.gpus}};
  AddEvidence(worst, times, now_realtime_ns, finding);
  std::string others;
  for (const FoundLateRank& other : all) {
    if (other.communicator == worst.communicator) continue;
    others += fmt::format("{}{}", others.empty() ? "" : ", ", NameOf(other));
    if (other.late->measures.is_straggler)
      others += fmt::format(" ({})", Percent(other.late->measures.cost));
  }
  if (!others.empty()) finding.evidence.emplace_back("late as well in", others);
  if (!late.unusual.empty()) finding.evidence.emplace_back("on its host meanwhile", late.unusual);
  finding.next = fmt::format(
      "Compare clocks, throttling and errors of {} with its peers, and look for other work on its "
      "CPUs. If all are equal, look at its own work by py-spy.",
      culprit.gpu_index >= 0 ? fmt::format("GPU {}", culprit.gpu_index) : "its GPU");
  finding.runbook = late.measures.is_straggler ? "NCCLStragglerRank" : "NCCLLastArriver";
  return finding;
}

// Late GPUs of one communicator that are found: an eighth of 64 ranks, more than a node has. Bounds
// the cost of a forged communicator.
constexpr size_t kMostLateOfOne = 8;

}  // namespace

std::vector<Finding> LateFindings(const collector::NodeSnapshot& node,
                                  const std::vector<LateRank>& late, const Thresholds& times) {
  if (late.empty()) return {};
  const std::vector<CommunicatorOnNode> communicators = CommunicatorsOnNode(node);
  const CommunicatorsByKey by_key = ByKey(communicators);
  std::map<GpuOfProcess, std::vector<FoundLateRank>> by_gpu;
  std::map<collector::CommunicatorKey, size_t> found_late;
  for (const LateRank& one : late) {
    const auto place = by_key.find(one.communicator);
    if (place == by_key.end()) continue;
    const CommunicatorOnNode& communicator = *place->second;
    // Ranks are in order.
    const auto number = [](const RankOnNode& here) { return here.communicator->rank; };
    const auto rank = std::ranges::lower_bound(communicator.ranks, one.rank, {}, number);
    if (rank == communicator.ranks.end() || number(*rank) != one.rank || !rank->process->is_alive)
      continue;
    if (++found_late[one.communicator] > kMostLateOfOne) continue;
    by_gpu[rank->gpu()].push_back({&one, &communicator, &*rank});
  }
  std::vector<Finding> findings;
  for (auto& [gpu, found] : by_gpu) {
    // A share of the time first: lateness of arrivals counts a wait once for each operation.
    std::ranges::stable_sort(found, std::ranges::greater(), [](const FoundLateRank& one) {
      return std::pair(one.late->measures.is_straggler, one.late->measures.cost);
    });
    findings.push_back(FindingOf(found, times, node.taken_realtime_ns));
  }
  return findings;
}

}  // namespace nccl_exporter::exporter
