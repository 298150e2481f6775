// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "exporter/findings/hangs/hang_sentences.h"
#include "exporter/findings/words.h"

namespace nccl_exporter::exporter {
namespace {

// The communicator that numbers of ranks are of; empty for global ranks.
std::string OfText(const GraphCommunicator& communicator, bool are_global) {
  return are_global ? "" : " of " + NameOf(communicator);
}

// Adds the collectives that each rank has started. NCCL numbers operations by function, so that
// #325 is no such count.
void AddCounts(const GraphCommunicator& communicator, bool are_global, Finding& finding) {
  std::map<uint64_t, std::vector<RankOnNode>, std::greater<>> ranks;
  for (const GraphRank& rank : communicator.ranks)
    ranks[rank.rank.communicator->started_sequence].push_back(rank.rank);
  std::string text;
  for (const auto& [started, who] : ranks)
    text +=
        fmt::format("{}{} by {}", text.empty() ? "" : "; ", started, RanksText(who, are_global));
  finding.evidence.emplace_back("collectives started", text + OfText(communicator, are_global));
  for (size_t i = 0; i < std::min(kMostListed, finding.culprits.size()); ++i) {
    const FoundRank& culprit = finding.culprits[i];
    if (culprit.behind == 0) continue;
    finding.evidence.emplace_back("behind",
                                  fmt::format("{} by {}", RankText(culprit, NameOf(communicator)),
                                              CountText(culprit.behind, "collective")));
  }
}

// Adds the last activity of the rank that the headline names, if it is in this communicator; else
// of the first cause.
void AddCulprit(const GraphCommunicator& communicator, int64_t now_ns, bool are_global,
                Finding& finding) {
  const auto is_cause = [](const GraphRank& rank) { return rank.is_culprit || rank.is_different; };
  auto culprit = std::ranges::find_if(communicator.ranks, [&](const GraphRank& rank) {
    return is_cause(rank) && !finding.culprits.empty() &&
           rank.rank.process->pid == finding.culprits.front().pid;
  });
  if (culprit == communicator.ranks.end())
    culprit = std::ranges::find_if(communicator.ranks, is_cause);
  if (culprit == communicator.ranks.end()) return;
  const collector::CommunicatorSnapshot& snapshot = *culprit->rank.communicator;
  const int64_t last_ns = snapshot.last_progress_realtime_ns;
  const std::string name =
      RanksText({culprit->rank}, are_global) + OfText(communicator, are_global);
  if (last_ns != 0)
    finding.evidence.emplace_back(
        "last activity of " + name,
        fmt::format("{}, {} ago", ClockText(last_ns), AgeText(last_ns, now_ns)));
  if (snapshot.is_closed) finding.evidence.emplace_back("finalized", name);
  if (culprit->seen != nullptr && culprit->seen->ended_realtime_ns != 0)
    finding.evidence.emplace_back("first seen ended", ClockText(culprit->seen->ended_realtime_ns));
}

void AddBlocked(const GraphJob& job, const GraphCommunicator& but, Finding& finding) {
  std::set<std::string> names;
  for (const GraphCommunicator& communicator : job.communicators) {
    const bool waits = std::ranges::any_of(
        communicator.ranks, [](const GraphRank& rank) { return rank.Lives() && rank.waits; });
    if (waits && &communicator != &but) names.insert(NameOf(communicator));
  }
  if (names.empty()) return;
  const auto next = [name = names.begin()](size_t) mutable { return *name++; };
  finding.evidence.emplace_back("also blocked", ListText(names.size(), next));
}

std::vector<RankOnNode> RanksOf(const GraphCommunicator& communicator) {
  std::vector<RankOnNode> ranks;
  for (const GraphRank& rank : communicator.ranks) ranks.push_back(rank.rank);
  return ranks;
}

// Adds the ranks that have no plugin or no room, or ended before, if all are on this node.
void AddNeverSeen(const GraphCommunicator& communicator, Finding& finding) {
  if (communicator.ranks.front().rank.communicator->nodes != 1 || communicator.is_complete) return;
  const MissingRanks missing = MissingOf(RanksOf(communicator));
  if (missing.count == 0) return;
  finding.evidence.emplace_back(communicator.may_lack_room
                                    ? fmt::format("not seen on this node, {}", kWhereNoRoom)
                                    : "never seen on this node",
                                MissingText(missing) + " of " + NameOf(communicator));
}

// Adds the GPUs of the job on this node that wait, each once, however many communicators it waits
// in.
void AddCost(const GraphJob& job, Finding& finding) {
  std::set<GpuOfProcess> waiting, all;
  for (const GraphCommunicator& communicator : job.communicators) {
    for (const GraphRank& rank : communicator.ranks) {
      all.insert(rank.gpu());
      if (rank.Lives() && rank.waits) waiting.insert(rank.gpu());
    }
  }
  finding.cost = fmt::format("{} of {} of this node {}", waiting.size(),
                             CountText(all.size(), "GPU"), waiting.size() == 1 ? "waits" : "wait");
  finding.numbers.emplace_back("lost_gpus", waiting.size());
  finding.numbers.emplace_back("gpus", all.size());
}

}  // namespace

std::string NameOf(const GraphCommunicator& communicator) {
  const std::string& name = communicator.ranks.front().rank.communicator->name;
  const std::string text = CommunicatorText(communicator.key.id, name);
  return name.empty() ? "communicator " + text : text;
}

bool HasGlobalRanks(const GraphJob& job) {
  return std::ranges::all_of(job.communicators, [](const GraphCommunicator& communicator) {
    return HaveGlobalRanks(RanksOf(communicator));
  });
}

void AddEvidence(const GraphJob& job, const GraphCommunicator& communicator,
                 const GraphRank& oldest, int64_t taken_realtime_ns, Finding& finding) {
  AddCost(job, finding);
  finding.evidence.emplace_back("waiting for",
                                AgeText(oldest.since_realtime_ns, taken_realtime_ns));
  if (oldest.operation != nullptr)
    finding.evidence.emplace_back(
        "operation", fmt::format("{} of {}, {}", OperationText(*oldest.operation),
                                 NameOf(communicator), BytesText(oldest.operation->bytes)));
  const bool are_global = HasGlobalRanks(job);
  AddCounts(communicator, are_global, finding);
  AddCulprit(communicator, taken_realtime_ns, are_global, finding);
  AddBlocked(job, communicator, finding);
  AddNeverSeen(communicator, finding);
}

}  // namespace nccl_exporter::exporter
