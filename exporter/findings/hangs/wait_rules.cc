// SPDX-License-Identifier: Apache-2.0
// Steps have the order and the names of the rules in deploy/prometheus/nccl-exporter.rules.yml.in.
#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>
#include <unordered_set>
#include <vector>

#include "exporter/findings/hangs/wait_graph.h"
#include "proto/collective.h"

namespace nccl_exporter::exporter {
namespace {

// Collectives that a rank may complete while another has not entered them, as the root of a
// Broadcast does.
bool IsRooted(Function function) {
  return function == Function::kBroadcast || function == Function::kReduce ||
         function == Function::kGather || function == Function::kScatter;
}

// Operations that a rank may complete before others enter them. kOther are one-sided operations.
bool IsCompletedAlone(Function function) {
  return TraitsOf(function).is_point_to_point || function == Function::kOther || IsRooted(function);
}

uint64_t StartedBy(const GraphRank& rank) { return rank.rank.communicator->started_sequence; }

// The oldest operation in flight that no other rank has completed, unless a rank may complete it
// alone: `max_completed` collectives are complete on some rank. Null: none.
const collector::InFlightOperation* WaitedIn(const collector::CommunicatorSnapshot& communicator,
                                             uint64_t max_completed) {
  const auto is_collective = [](const collector::InFlightOperation& operation) {
    return !TraitsOf(operation.function).is_point_to_point;
  };
  uint64_t left =
      static_cast<uint64_t>(std::ranges::count_if(communicator.in_flight, is_collective));
  for (const collector::InFlightOperation& operation : communicator.in_flight) {
    if (IsCompletedAlone(operation.function)) return &operation;
    // A lost completion leaves its operation in flight: numbers are counted back from the latest.
    if (communicator.started_sequence - std::min(communicator.started_sequence, --left) >
        max_completed)
      return &operation;
  }
  return nullptr;
}

class JobJudge {
 public:
  JobJudge(GraphJob& job, int64_t at_ns, const Thresholds& times, int64_t threshold_ns,
           Suspects suspects)
      : communicators_(job.communicators),
        last_progress_ns_(job.last_progress_realtime_ns),
        at_ns_(at_ns),
        times_(times),
        threshold_ns_(threshold_ns),
        suspects_(suspects) {}

  void Judge() {
    for (GraphCommunicator& communicator : communicators_) FindStill(communicator);
    FindBusy();
    for (GraphCommunicator& communicator : communicators_) FindHeld(communicator);
    FindWaits();
    FindWaited();
    for (GraphCommunicator& communicator : communicators_) FindBehind(communicator);
    FindCulprits();
    for (GraphCommunicator& communicator : communicators_) FindDifferent(communicator);
    FindNobodyBehind();
    FindCircles();
  }

 private:
  int64_t AgeOf(const GraphRank& rank) const {
    const collector::CommunicatorSnapshot& here = *rank.rank.communicator;
    int64_t last_ns = here.last_progress_realtime_ns;
    // An operation that began while the slot was copied is in the later part of the copy only.
    if (!here.in_flight.empty())
      last_ns = std::max(last_ns, here.in_flight.back().start_realtime_ns);
    return at_ns_ - last_ns;
  }
  // Half the threshold: the ranks of a hang do not stop at one moment.
  bool IsStill(const GraphRank& rank) const { return AgeOf(rank) >= threshold_ns_ / 2; }

  // An ended process is not busy. Its times are those of its last reading, and the clock may have
  // been set since.
  bool IsBusy(const GraphRank& rank) const {
    return rank.is_here && rank.rank.process->is_alive && !IsStill(rank);
  }

  template <typename Visit>
  void EachRank(Visit visit) const {
    for (GraphCommunicator& communicator : communicators_) {
      for (GraphRank& rank : communicator.ranks) visit(communicator, rank);
    }
  }
  static size_t Count(const GraphCommunicator& communicator, bool GraphRank::*flag) {
    return static_cast<size_t>(std::ranges::count(communicator.ranks, true, flag));
  }

  void FindStill(GraphCommunicator& communicator) const {
    communicator.is_still = std::ranges::none_of(
        communicator.ranks, [&](const GraphRank& rank) { return IsBusy(rank); });
    communicator.youngest_ns = std::numeric_limits<int64_t>::max();
    for (const GraphRank& rank : communicator.ranks) {
      if (rank.is_here) communicator.youngest_ns = std::min(communicator.youngest_ns, AgeOf(rank));
    }
  }

  void FindBusy() {
    EachRank([&](const GraphCommunicator&, const GraphRank& rank) {
      if (IsBusy(rank)) busy_.insert(rank.gpu());
      if (!rank.Lives()) return;
      const auto entry = youngest_ns_.try_emplace(rank.gpu(), AgeOf(rank)).first;
      entry->second = std::min(entry->second, AgeOf(rank));
    });
    for (auto& [gpu, age_ns] : youngest_ns_) {
      const auto last = last_progress_ns_.find(gpu);
      if (last != last_progress_ns_.end()) age_ns = std::min(age_ns, at_ns_ - last->second);
    }
  }

  // Whether the rank's GPU has made progress elsewhere, long after the communicator stood still.
  bool HasGoneOn(const GraphCommunicator& communicator, const GraphRank& rank) const {
    const int64_t youngest_ns = youngest_ns_.at(rank.gpu());
    return (may_pause_ || youngest_ns <= times_.abandoned_for().count()) &&
           communicator.youngest_ns - youngest_ns >= times_.went_on().count();
  }

  // Finds those that wait, last in communicators that may be abandoned: a job that waits in another
  // one pauses for that one, however long.
  void FindWaits() {
    may_pause_ = true;
    const auto first_left =
        std::stable_partition(communicators_.begin(), communicators_.end(),
                              [&](const GraphCommunicator& c) { return !IsLeft(c); });
    may_pause_ = false;
    const auto find_in = [&](GraphCommunicator& communicator) {
      FindAbandoned(communicator);
      FindUnseen(communicator);
    };
    std::for_each(communicators_.begin(), first_left, find_in);
    may_pause_ = std::any_of(communicators_.begin(), first_left, [](const GraphCommunicator& c) {
      return Count(c, &GraphRank::waits) > 0;
    });
    std::for_each(first_left, communicators_.end(), find_in);
  }

  // Whether all ranks that may wait in it have gone on.
  bool IsLeft(const GraphCommunicator& communicator) const {
    return communicator.is_still &&
           std::ranges::all_of(communicator.ranks, [&](const GraphRank& rank) {
             const bool may_wait = rank.waits || !rank.rank.communicator->completion_is_known;
             return !rank.Lives() || !may_wait || HasGoneOn(communicator, rank);
           });
  }

  void FindHeld(GraphCommunicator& communicator) const {
    if (!communicator.is_still) return;
    uint64_t max_completed = 0;
    for (const GraphRank& rank : communicator.ranks) {
      if (rank.is_here && rank.rank.communicator->completion_is_known)
        max_completed = std::max(max_completed, rank.rank.communicator->completed_sequence);
    }
    for (GraphRank& rank : communicator.ranks) {
      if (!rank.Lives() || !rank.rank.communicator->completion_is_known) continue;
      rank.operation = WaitedIn(*rank.rank.communicator, max_completed);
      rank.waits = rank.operation != nullptr;
      if (rank.waits) rank.since_realtime_ns = rank.operation->start_realtime_ns;
    }
  }

  void FindAbandoned(GraphCommunicator& communicator) const {
    const size_t waiting = Count(communicator, &GraphRank::waits);
    if (!communicator.is_still || waiting == 0) return;
    // A job may shrink a communicator as soon as a rank is dead, and not on all ranks at once.
    const auto busy =
        static_cast<size_t>(std::ranges::count_if(communicator.ranks, [&](const GraphRank& rank) {
          return rank.waits && busy_.contains(rank.gpu());
        }));
    const bool goes_on = suspects_ == Suspects::kHalted ? busy > 0 : busy == waiting;
    communicator.is_abandoned = std::ranges::all_of(communicator.ranks, [&](const GraphRank& rank) {
      return !rank.waits || HasGoneOn(communicator, rank);
    });
    if (!communicator.is_abandoned && !goes_on) return;
    for (GraphRank& rank : communicator.ranks) {
      rank.waits = false;
      rank.operation = nullptr;
    }
  }

  // Ranks whose completions are not seen, while their GPU makes no progress.
  void FindUnseen(GraphCommunicator& communicator) {
    if (!communicator.is_still || communicator.is_abandoned) return;
    uint64_t min_started = std::numeric_limits<uint64_t>::max();
    size_t here = 0, halted = 0, missed = 0;
    for (const GraphRank& rank : communicator.ranks) {
      if (!rank.is_here) continue;
      ++here;
      halted += rank.rank.process->IsHalted();
      missed += rank.rank.process->IsHalted() && !(rank.seen != nullptr && rank.seen->has_waited);
      min_started = std::min(min_started, StartedBy(rank));
    }
    // Operations need the halted ranks. At the end of a job most are halted, and in that of a hung
    // one those that waited.
    const bool some_halted = missed > 0 && 2 * halted < here;
    const bool some_absent = here < communicator.ranks.size();
    for (GraphRank& rank : communicator.ranks) {
      const bool has_waited = rank.seen != nullptr && rank.seen->has_waited;
      if (!rank.Lives()) {
        // A rank that waited and then ended or was stopped is not the cause.
        rank.waits = has_waited;
        continue;
      }
      const collector::CommunicatorSnapshot& c = *rank.rank.communicator;
      if (suspects_ == Suspects::kHalted || c.completion_is_known || c.is_closed ||
          c.started_sequence == 0 || busy_.contains(rank.gpu()) || HasGoneOn(communicator, rank))
        continue;
      rank.waits = c.started_sequence > min_started || some_halted || (some_absent && has_waited);
      if (rank.waits) rank.since_realtime_ns = c.last_progress_realtime_ns;
      // The rank may be ahead of one on another node.
      if (!rank.waits && !communicator.is_complete) may_wait_.insert(rank.gpu());
    }
  }

  void FindWaited() {
    std::map<GpuOfProcess, int64_t> waited_ns;
    EachRank([&](const GraphCommunicator& communicator, const GraphRank& rank) {
      if (!rank.waits) return;
      const auto [waited_in, is_first] = waiting_.try_emplace(rank.gpu(), &communicator);
      if (!is_first && waited_in->second != &communicator) waited_in->second = nullptr;
      if (!rank.Lives() || AgeOf(rank) < threshold_ns_) return;
      int64_t& longest_ns = waited_ns[rank.gpu()];
      longest_ns = std::max(longest_ns, AgeOf(rank));
    });
    EachRank([&](GraphCommunicator& communicator, const GraphRank& rank) {
      const auto waited = waited_ns.find(rank.gpu());
      if (!rank.waits || waited == waited_ns.end()) return;
      communicator.has_waited = true;
      communicator.waited_ns = std::max(communicator.waited_ns, waited->second);
    });
  }

  // The ranks that do not wait, and that no rank waits for to send or to receive. Looks at each
  // operation once: a user may forge thousands of ranks with hundreds of operations each.
  static std::unordered_set<uint64_t> NotMissed(const GraphCommunicator& communicator) {
    std::unordered_set<uint64_t> not_missed;
    for (const GraphRank& rank : communicator.ranks) {
      if (!rank.waits) not_missed.insert(rank.rank.communicator->rank);
    }
    for (const GraphRank& rank : communicator.ranks) {
      if (not_missed.empty()) break;
      if (!rank.waits || rank.operation == nullptr ||
          !TraitsOf(rank.operation->function).is_point_to_point)
        continue;
      for (const collector::InFlightOperation& operation : rank.rank.communicator->in_flight) {
        if (!TraitsOf(operation.function).is_point_to_point) continue;
        if (operation.peer >= 0) {
          not_missed.erase(static_cast<uint64_t>(operation.peer));
        } else if (communicator.is_complete) {
          return {};  // the peer is not reported: it may be any rank
        }
      }
    }
    return not_missed;
  }

  static void FindBehind(GraphCommunicator& communicator) {
    if (Count(communicator, &GraphRank::waits) == 0) return;
    uint64_t max_started = 0;
    for (const GraphRank& rank : communicator.ranks)
      max_started = std::max(max_started, StartedBy(rank));
    const std::unordered_set<uint64_t> not_missed = NotMissed(communicator);
    for (GraphRank& rank : communicator.ranks) {
      rank.behind = max_started - StartedBy(rank);
      rank.is_behind = !rank.waits && (rank.behind > 0 || !rank.Lives() ||
                                       !not_missed.contains(rank.rank.communicator->rank));
    }
  }

  // Whether the rank's GPU waits, in another communicator. In this one it is another GPU, of the
  // same process, that is not known either: no GPU has two ranks there.
  bool WaitsBeside(const GraphCommunicator& communicator, const GraphRank& rank) const {
    const auto waited_in = waiting_.find(rank.gpu());
    return waited_in != waiting_.end() && waited_in->second != &communicator;
  }

  static bool IsLongHalted(const GraphRank& rank) {
    return rank.HasHalted() && rank.seen != nullptr &&
           rank.seen->halted_snapshots >= kHaltedSnapshots;
  }

  // Whether fewer than half of the GPUs are halted: a job ends, or is suspended, process by
  // process.
  bool MostGoOn() const {
    std::set<GpuOfProcess> all, halted;
    EachRank([&](const GraphCommunicator&, const GraphRank& rank) {
      all.insert(rank.gpu());
      if (rank.HasHalted()) halted.insert(rank.gpu());
    });
    return 2 * halted.size() < all.size();
  }

  // Culprits are behind in a communicator, and wait in none. A rank without a send or receive in
  // flight may have completed them: it counts only if no other is found.
  void FindCulprits() {
    if (suspects_ == Suspects::kHalted && !MostGoOn()) return;
    std::set<GpuOfProcess> certain;
    const auto is_suspect = [&](const GraphCommunicator& communicator, const GraphRank& rank) {
      if (suspects_ == Suspects::kHalted && !IsLongHalted(rank)) return false;
      return communicator.has_waited && rank.is_behind && !WaitsBeside(communicator, rank) &&
             (!rank.Lives() || !may_wait_.contains(rank.gpu()));
    };
    EachRank([&](const GraphCommunicator& communicator, const GraphRank& rank) {
      if (is_suspect(communicator, rank) && (rank.behind > 0 || !rank.Lives()))
        certain.insert(rank.gpu());
    });
    EachRank([&](const GraphCommunicator& communicator, GraphRank& rank) {
      rank.is_culprit =
          is_suspect(communicator, rank) && (certain.empty() || certain.contains(rank.gpu()));
    });
  }

  // Ranks in another collective than most. A rank that is past a rooted collective, in which others
  // wait, is not compared.
  static void FindDifferent(GraphCommunicator& communicator) {
    if (!communicator.has_waited) return;
    uint64_t min_rooted = std::numeric_limits<uint64_t>::max();
    for (const GraphRank& rank : communicator.ranks) {
      if (rank.operation != nullptr && IsRooted(rank.operation->function))
        min_rooted = std::min(min_rooted, rank.rank.communicator->completed_sequence);
    }
    const auto is_compared = [&](const GraphRank& rank) {
      return rank.operation != nullptr && !TraitsOf(rank.operation->function).is_point_to_point &&
             rank.rank.communicator->completed_sequence <= min_rooted;
    };
    std::array<size_t, kFunctionCount> counts{};
    for (const GraphRank& rank : communicator.ranks) {
      if (is_compared(rank)) ++counts[static_cast<size_t>(rank.operation->function)];
    }
    const size_t most = *std::ranges::max_element(counts);
    for (GraphRank& rank : communicator.ranks) {
      rank.is_different =
          is_compared(rank) && counts[static_cast<size_t>(rank.operation->function)] < most;
    }
  }

  bool IsCauseKnown() const {
    return std::ranges::any_of(communicators_, [](const GraphCommunicator& communicator) {
      return Count(communicator, &GraphRank::is_culprit) +
                 Count(communicator, &GraphRank::is_different) >
             0;
    });
  }
  // Whether a rank may wait for a rank of another node.
  bool WaitsElsewhere() const {
    return !may_wait_.empty() ||
           std::ranges::any_of(communicators_, [](const GraphCommunicator& communicator) {
             return !communicator.is_complete && Count(communicator, &GraphRank::waits) > 0;
           });
  }

  void FindQueued() {
    std::map<GpuOfProcess, int64_t> oldest;
    EachRank([&](const GraphCommunicator&, const GraphRank& rank) {
      if (rank.operation == nullptr) return;
      const auto entry = oldest.try_emplace(rank.gpu(), rank.since_realtime_ns).first;
      entry->second = std::min(entry->second, rank.since_realtime_ns);
    });
    EachRank([&](GraphCommunicator& communicator, const GraphRank& rank) {
      communicator.is_queued |=
          rank.operation != nullptr && rank.since_realtime_ns > oldest.at(rank.gpu());
    });
  }

  // Communicators with all ranks inside that hold the oldest operation of each of their GPUs; if
  // there are none, all with all ranks inside.
  void FindNobodyBehind() {
    FindQueued();
    if (IsCauseKnown()) return;
    const auto is_inside = [](const GraphCommunicator& communicator) {
      return communicator.has_waited && communicator.is_complete &&
             Count(communicator, &GraphRank::is_behind) == 0;
    };
    bool any = false;
    for (GraphCommunicator& communicator : communicators_) {
      communicator.nobody_behind = is_inside(communicator) && !communicator.is_queued;
      any |= communicator.nobody_behind;
    }
    if (any || WaitsElsewhere()) return;
    for (GraphCommunicator& communicator : communicators_)
      communicator.nobody_behind = is_inside(communicator);
  }

  // If all ranks wait in a circle of communicators, finds the minority that the majority waits for.
  // A circle through another node looks like one here.
  void FindCircles() {
    if (IsCauseKnown() || WaitsElsewhere() ||
        std::ranges::any_of(communicators_, &GraphCommunicator::nobody_behind))
      return;
    for (GraphCommunicator& communicator : communicators_) {
      if (!communicator.has_waited ||
          Count(communicator, &GraphRank::is_behind) >= Count(communicator, &GraphRank::waits))
        continue;
      for (GraphRank& rank : communicator.ranks) rank.is_different = rank.is_behind;
    }
  }

  std::vector<GraphCommunicator>& communicators_;
  const std::map<GpuOfProcess, int64_t>& last_progress_ns_;
  const int64_t at_ns_;
  const Thresholds& times_;
  const int64_t threshold_ns_;
  const Suspects suspects_;
  bool may_pause_ = false;                       // for any time, and has still gone on
  std::set<GpuOfProcess> busy_;                  // that make progress
  std::map<GpuOfProcess, int64_t> youngest_ns_;  // age of the latest progress of those that live
  // GPUs that wait, and the communicator in which they do; null: in several.
  std::map<GpuOfProcess, const GraphCommunicator*> waiting_;
  std::set<GpuOfProcess> may_wait_;  // for ranks of other nodes
};

}  // namespace

void ApplyWaitRules(GraphJob& job, int64_t at_realtime_ns, const Thresholds& times,
                    std::chrono::nanoseconds threshold, Suspects suspects) {
  JobJudge(job, at_realtime_ns, times, threshold.count(), suspects).Judge();
}

}  // namespace nccl_exporter::exporter
