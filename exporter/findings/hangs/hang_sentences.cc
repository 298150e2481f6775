// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/hangs/hang_sentences.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "exporter/findings/words.h"

namespace nccl_exporter::exporter {
namespace {

Standing StandingOf(const GraphRank& rank) {
  const bool has_ended =
      rank.is_here ? !rank.rank.process->is_alive : rank.seen->ended_realtime_ns != 0;
  if (has_ended) return Standing::kKilled;
  if (!rank.is_here) return Standing::kMissing;
  if (!rank.Lives()) return Standing::kStopped;
  return rank.behind > 0 ? Standing::kMissingCall : Standing::kNoPartner;
}

bool IsVictim(const GraphRank& rank) {
  return rank.Lives() && rank.waits && !rank.is_different && !rank.is_culprit;
}

std::string HostOf(const FoundRank& rank) {
  std::string text;
  if (!rank.pod.empty()) text += " in pod " + rank.pod;
  if (!rank.host_name.empty()) text += " on " + rank.host_name;
  return text;
}

std::string StackOf(const FoundRank& rank) {
  return fmt::format("py-spy dump --pid {0} or gdb -p {0}{1}", rank.pid, HostOf(rank));
}

std::string NextFor(const FoundRank& culprit) {
  const std::string place = fmt::format("pid {}{}", culprit.pid, HostOf(culprit));
  switch (culprit.standing) {
    case Standing::kKilled:
    case Standing::kMissing:
      return "Look in the job's log and in dmesg (out of memory, XID) why " + place +
             " has ended; then end the job.";
    case Standing::kStopped:
      return fmt::format(
          "Find the signal or the debugger that stopped {}: kill -CONT {} resumes it.", place,
          culprit.pid);
    default:
      return "Look at its stack before the job is killed: " + StackOf(culprit) + ".";
  }
}

// States of processes are the surest, then missing calls.
int SuretyOf(Standing standing) {
  if (standing == Standing::kKilled || standing == Standing::kMissing) return 3;
  if (standing == Standing::kStopped) return 2;
  return standing == Standing::kMissingCall ? 1 : 0;
}

// A hang in one communicator of a job.
class Hang {
 public:
  Hang(const GraphJob& job, const GraphCommunicator& communicator, bool is_hang)
      : job_(job), here_(communicator), is_hang_(is_hang), are_global_(HasGlobalRanks(job)) {
    for (const GraphRank& rank : here_.ranks) {
      if (!IsVictim(rank)) continue;
      ++waiting_;
      if (oldest_ == nullptr || rank.since_realtime_ns < oldest_->since_realtime_ns)
        oldest_ = &rank;
    }
    for (const GraphRank& rank : here_.ranks) {
      if (oldest_ == nullptr && rank.Lives() && rank.waits) oldest_ = &rank;
    }
  }

  Finding FindingOf(FindingKind kind, Severity severity, int64_t taken_realtime_ns) const {
    Finding finding = FindingAbout(kind, severity, here_.key, here_.ranks.front().rank);
    finding.since_realtime_ns = oldest_->since_realtime_ns;
    AddWaiting(finding);
    if (kind == FindingKind::kHangCulprit) {
      TellCulprits(finding);
    } else if (kind == FindingKind::kHangOtherCall) {
      TellOtherCall(finding);
    } else if (kind == FindingKind::kHangNobodyBehind) {
      TellNobodyBehind(finding);
    } else {
      TellElsewhere(finding);
    }
    AddEvidence(job_, here_, *oldest_, taken_realtime_ns, finding);
    AddCollect(here_, finding);
    return finding;
  }

 private:
  FoundRank Found(const GraphRank& rank, Standing standing) const {
    FoundRank found = FoundRankOf(rank.rank, standing, are_global_);
    found.behind = rank.behind;
    if (rank.operation != nullptr) {
      AddOperation(rank.rank, *rank.operation, found);
    } else if (standing == Standing::kWaits) {
      found.since_realtime_ns = rank.since_realtime_ns;
    } else if (standing == Standing::kKilled && rank.seen != nullptr &&
               rank.seen->ended_realtime_ns != 0) {
      found.since_realtime_ns = rank.seen->ended_realtime_ns;
    }
    return found;
  }

  void AddWaiting(Finding& finding) const {
    for (const GraphRank& rank : here_.ranks) {
      if (!IsVictim(rank)) continue;
      if (finding.waiting.size() == kMostFoundRanks) {
        ++finding.more_waiting;
      } else {
        finding.waiting.push_back(Found(rank, Standing::kWaits));
      }
    }
  }

  void TellCulprits(Finding& finding) const {
    AddCulprits(&GraphRank::is_culprit, finding);
    const FoundRank& first = finding.culprits.front();
    finding.headline = fmt::format("{}: {} for {}, {}.", Opening(finding), Waiting(),
                                   Named(finding), ClauseOf(first));
    finding.next = NextFor(first);
    finding.runbook = "NCCLHangCulprit";
  }

  void TellOtherCall(Finding& finding) const {
    AddCulprits(&GraphRank::is_different, finding);
    finding.headline = Opening(finding) + ": " + CallsText(finding) + ".";
    const FoundRank& first =
        finding.culprits.empty() ? finding.waiting.front() : finding.culprits.front();
    finding.next =
        "Compare the stacks of two of these ranks before the job is killed: " + StackOf(first) +
        ".";
    finding.runbook = "NCCLHangMismatchedCall";
  }

  void TellNobodyBehind(Finding& finding) const {
    finding.headline =
        fmt::format("{}: all {} are inside {} of {}, and it does not end.", Opening(finding),
                    CountText(here_.ranks.size(), "rank"), Operation(), NameOf(here_));
    finding.next =
        "Look for errors of links and GPUs before the job is killed: dmesg (XID), "
        "nvidia-smi nvlink -e, ibstat.";
    finding.runbook = "NCCLHangNobodyBehind";
  }

  // It is not known on this node for whom the ranks wait.
  void TellElsewhere(Finding& finding) const {
    const collector::CommunicatorSnapshot& any = *here_.ranks.front().rank.communicator;
    const uint64_t absent = any.ranks - std::min<uint64_t>(any.ranks, here_.ranks.size());
    const size_t all_waiting = AllWaiting();
    std::string why;
    if (any.ranks == 0) {
      why = "this NCCL does not report the number of ranks";
    } else if (absent == 0) {
      why = OthersText();
    } else if (here_.may_lack_room) {
      why = fmt::format("{} of {} ranks are not seen on this node, {}", absent, any.ranks,
                        kWhereNoRoom);
    } else if (any.nodes == 1) {
      why = fmt::format("{} of {} ranks were never seen on this node", absent, any.ranks);
    } else {
      why = fmt::format(
          "the ranks that {} for are on other nodes; {} of {} ranks are not on this node",
          waiting_ == 1 ? "it waits" : "they wait", absent, any.ranks);
    }
    const bool is_elsewhere = any.nodes != 1 && absent > 0 && !here_.may_lack_room;
    if (is_elsewhere && all_waiting > 0) {
      finding.headline =
          fmt::format("{}: {} for another node, in {} of {}; this node is probably not the cause.",
                      Opening(finding),
                      all_waiting == 1 ? "its rank here waits"
                                       : fmt::format("all {} ranks here wait", all_waiting),
                      Operation(), NameOf(here_));
    } else {
      finding.headline = fmt::format("{}: {} in {} of {}, and {}.", Opening(finding), Waiting(),
                                     Operation(), NameOf(here_), why);
    }
    finding.next =
        any.nodes == 1 && absent > 0 && here_.may_lack_room
            ? "Look at the stacks of the ranks that are not seen. The runbooks "
              "NCCLExporterEventsDropped and NCCLExporterSegmentsUnusable say how to make room."
        : any.nodes == 1 && absent > 0
            ? "Look for ranks without the plugin, and in the job's log for ranks that have ended."
            : OtherNodesText();
    finding.runbook = "NCCLCollectiveHang";
  }

  // GPUs of the job, if each of them is seen to wait in an operation; else 0. Only a broken link of
  // the node, or calls in an order that blocks two nodes, make it the cause then.
  size_t AllWaiting() const {
    std::map<GpuOfProcess, bool> waits;
    for (const GraphCommunicator& communicator : job_.communicators) {
      for (const GraphRank& rank : communicator.ranks)
        waits[rank.gpu()] |= rank.Lives() && rank.waits && rank.operation != nullptr;
    }
    const bool do_all = std::ranges::all_of(waits, [](const auto& gpu) { return gpu.second; });
    return do_all ? waits.size() : 0;
  }

  // A job chooses its name: it is in a command only if any shell may run that.
  std::string OtherNodesText() const {
    const std::string report = "Ask Prometheus which node it is: nccl-exporter report --job ";
    return fmt::format(
        "{} nccl-exporter inflight on the other nodes of the job: that of the cause names it.",
        IsPlain(here_.key.job) ? report + here_.key.job + ". Without Prometheus, run" : "Run");
  }

  std::string Opening(const Finding& finding) const {
    return fmt::format("{} {} since {}", Capital(finding.job), is_hang_ ? "hangs" : "waits",
                       ClockText(oldest_->since_realtime_ns));
  }

  std::string Waiting() const {
    return CountText(waiting_, "rank") + (waiting_ == 1 ? " waits" : " wait");
  }

  // The operation of the rank that has waited longest.
  std::string Operation() const {
    return oldest_->operation == nullptr ? "an operation" : OperationText(*oldest_->operation);
  }

  // Ranks of this communicator first, then those of others: each GPU once.
  void AddCulprits(bool GraphRank::*flag, Finding& finding) const {
    std::set<GpuOfProcess> named;
    const auto add = [&](const GraphCommunicator& communicator) {
      std::vector<std::pair<Standing, const GraphRank*>> ranks;
      for (const GraphRank& rank : communicator.ranks) {
        if (!(rank.*flag)) continue;
        ranks.emplace_back(
            flag == &GraphRank::is_different ? Standing::kOtherCall : StandingOf(rank), &rank);
      }
      std::ranges::stable_sort(ranks, std::ranges::greater(),
                               [](const auto& rank) { return SuretyOf(rank.first); });
      for (const auto& [standing, rank] : ranks) {
        if (!named.insert(rank->gpu()).second) continue;
        if (finding.culprits.size() == kMostFoundRanks) {
          ++finding.more_culprits;
          continue;
        }
        FoundRank& found = finding.culprits.emplace_back(Found(*rank, standing));
        if (standing == Standing::kOtherCall && found.operation.empty()) AddCall(*rank, found);
      }
    };
    add(here_);
    for (const GraphCommunicator& communicator : job_.communicators) {
      if (&communicator != &here_) add(communicator);
    }
  }

  // Adds the operation that the rank waits in on another communicator.
  void AddCall(const GraphRank& rank, FoundRank& found) const {
    for (const GraphCommunicator& communicator : job_.communicators) {
      if (&communicator == &here_) continue;
      for (const GraphRank& other : communicator.ranks) {
        if (other.gpu() != rank.gpu() || other.operation == nullptr) continue;
        found.operation = OperationText(*other.operation) + " of " + NameOf(communicator);
        found.since_realtime_ns = other.since_realtime_ns;
        return;
      }
    }
  }

  std::string Named(const Finding& finding) const {
    return ListText(
        finding.culprits.size() + finding.more_culprits,
        [&](size_t i) { return RankText(finding.culprits[i], NameOf(here_)); }, 1);
  }

  std::string ClauseOf(const FoundRank& culprit) const {
    switch (culprit.standing) {
      case Standing::kKilled:
        return "whose process has ended";
      case Standing::kStopped:
        return "whose process is stopped";
      case Standing::kMissing:
        return "which is not seen on this node any more";
      case Standing::kNoPartner:
        return "which has no send or receive in flight";
      default:
        return fmt::format("which has not entered {} of {}", Operation(), NameOf(here_));
    }
  }

  // "global rank 3 (...) is in AllReduce #12, the other 7 in AllGather #325 of dp".
  std::string CallsText(const Finding& finding) const {
    if (!finding.culprits.empty()) {
      const std::string& call = finding.culprits.front().operation;
      return fmt::format("{} {} in {}, the other {} in {} of {}", Named(finding),
                         finding.culprits.size() == 1 ? "is" : "are",
                         call.empty() ? "another operation" : call, waiting_, Operation(),
                         NameOf(here_));
    }
    const auto call_of = [&](size_t i) {
      const FoundRank& rank = finding.waiting[i];
      return fmt::format("{} is in {}", RankText(rank, NameOf(here_)),
                         rank.operation.empty() ? "an operation" : rank.operation);
    };
    return "ranks of " + NameOf(here_) + " are in different calls: " +
           ListText(finding.waiting.size() + finding.more_waiting, call_of);
  }

  // The ranks that are behind, and what they wait in elsewhere.
  std::string OthersText() const {
    std::vector<const GraphRank*> others;
    for (const GraphRank& rank : here_.ranks) {
      if (rank.is_behind) others.push_back(&rank);
    }
    if (others.empty()) return "it is not known for whom";
    return ListText(others.size(), [&](size_t i) {
      FoundRank found = Found(*others[i], Standing::kWaits);
      AddCall(*others[i], found);
      return RankText(found, NameOf(here_)) + (found.operation.empty()
                                                   ? " may wait for ranks on other nodes"
                                                   : " waits in " + found.operation);
    });
  }

  const GraphJob& job_;
  const GraphCommunicator& here_;
  const bool is_hang_;                 // it has waited for as long as a hang
  const bool are_global_;              // the numbers of ranks
  size_t waiting_ = 0;                 // ranks
  const GraphRank* oldest_ = nullptr;  // of them, the one that has waited longest
};

}  // namespace

Finding HangFinding(FindingKind kind, const GraphJob& job, const GraphCommunicator& communicator,
                    int64_t taken_realtime_ns, bool is_hang, Severity severity) {
  return Hang(job, communicator, is_hang).FindingOf(kind, severity, taken_realtime_ns);
}

}  // namespace nccl_exporter::exporter
