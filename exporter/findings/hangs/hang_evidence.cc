// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/hangs/hang_evidence.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "exporter/findings/words.h"

namespace nccl_exporter::exporter {
namespace {

void Add(Finding& finding, std::string name, std::string value) {
  finding.evidence.emplace_back(std::move(name), std::move(value));
}

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
    text += fmt::format("{}{} by {}", text.empty() ? "" : "; ", started,
                        RanksText(who, are_global, kMostNamed));
  Add(finding, "collectives started", text + OfText(communicator, are_global));
  for (size_t i = 0; i < std::min(kMostNamed, finding.culprits.size()); ++i) {
    const FoundRank& culprit = finding.culprits[i];
    if (culprit.behind == 0) continue;
    Add(finding, "behind",
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
      RanksText({culprit->rank}, are_global, 1) + OfText(communicator, are_global);
  if (last_ns != 0)
    Add(finding, "last activity of " + name,
        fmt::format("{}, {} ago", ClockText(last_ns), AgeText(last_ns, now_ns)));
  if (snapshot.is_closed) Add(finding, "finalized", name);
  if (culprit->seen != nullptr && culprit->seen->ended_realtime_ns != 0)
    Add(finding, "first seen ended", ClockText(culprit->seen->ended_realtime_ns));
}

void AddBlocked(const GraphJob& job, const GraphCommunicator& but, Finding& finding) {
  std::set<std::string> blocked;
  for (const GraphCommunicator& communicator : job.communicators) {
    const bool waits = std::ranges::any_of(
        communicator.ranks, [](const GraphRank& rank) { return rank.Lives() && rank.waits; });
    if (waits && &communicator != &but) blocked.insert(NameOf(communicator));
  }
  if (!blocked.empty()) Add(finding, "also blocked", ListText({blocked.begin(), blocked.end()}));
}

// Adds the ranks that have no plugin, or ended before, if all ranks are on this node.
void AddNeverSeen(const GraphCommunicator& communicator, Finding& finding) {
  const collector::CommunicatorSnapshot& any = *communicator.ranks.front().rank.communicator;
  if (any.nodes != 1 || communicator.is_complete) return;
  std::set<uint64_t> known;
  for (const GraphRank& rank : communicator.ranks) known.insert(rank.rank.communicator->rank);
  std::vector<std::string> ranks;
  // The number of ranks comes from a file, and may be any.
  for (uint64_t rank = 0; rank < any.ranks && ranks.size() <= kMostNamed; ++rank) {
    if (!known.contains(rank)) ranks.push_back(std::to_string(rank));
  }
  if (ranks.size() > kMostNamed) ranks.back() = "more";
  if (ranks.empty()) return;
  Add(finding,
      communicator.may_be_cut ? "not seen on this node, where the daemon lacks room"
                              : "never seen on this node",
      fmt::format("rank {} of {}", fmt::join(ranks, ", "), NameOf(communicator)));
}

}  // namespace

std::string NameOf(const GraphCommunicator& communicator) {
  const std::string& name = communicator.ranks.front().rank.communicator->name;
  const std::string text = CommunicatorText(communicator.key.id, name);
  return name.empty() ? "communicator " + text : text;
}

std::string ListText(const std::vector<std::string>& names, size_t more) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMostNamed); ++i)
    text += (i == 0 ? "" : ", ") + names[i];
  more += names.size() - std::min(names.size(), kMostNamed);
  if (more != 0) text += fmt::format(" and {} more", more);
  return text;
}

bool HasGlobalRanks(const GraphJob& job) {
  std::vector<RankOnNode> ranks;
  for (const GraphCommunicator& communicator : job.communicators) {
    for (const GraphRank& rank : communicator.ranks) ranks.push_back(rank.rank);
  }
  return HaveGlobalRanks(ranks);
}

std::string CostText(const GraphJob& job) {
  std::set<GpuOfProcess> waiting, all;
  for (const GraphCommunicator& communicator : job.communicators) {
    for (const GraphRank& rank : communicator.ranks) {
      all.insert(rank.gpu());
      if (rank.Lives() && rank.waits) waiting.insert(rank.gpu());
    }
  }
  return fmt::format("{} of {} of this node {}", waiting.size(), CountText(all.size(), "GPU"),
                     waiting.size() == 1 ? "waits" : "wait");
}

void AddEvidence(const GraphJob& job, const GraphCommunicator& communicator,
                 const GraphRank& oldest, int64_t taken_realtime_ns, Finding& finding) {
  Add(finding, "waiting for", AgeText(oldest.since_realtime_ns, taken_realtime_ns));
  if (oldest.operation != nullptr)
    Add(finding, "operation",
        fmt::format("{} of {}, {}", OperationText(*oldest.operation), NameOf(communicator),
                    BytesText(oldest.operation->bytes)));
  const bool are_global = HasGlobalRanks(job);
  AddCounts(communicator, are_global, finding);
  AddCulprit(communicator, taken_realtime_ns, are_global, finding);
  AddBlocked(job, communicator, finding);
  AddNeverSeen(communicator, finding);
}

}  // namespace nccl_exporter::exporter
