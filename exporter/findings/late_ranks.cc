// SPDX-License-Identifier: Apache-2.0
// The memory of judgements.
#include "exporter/findings/late_ranks.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "exporter/findings/late/busy_rates.h"
#include "exporter/ledger/local_communicators.h"

namespace nccl_exporter::exporter {
namespace {

// A straggler is one in so much of the judgements in which any rank of the communicator is.
constexpr double kShareOfJudgements = 0.75;
// Memory is one bit per judgement: `history` has 40.
constexpr int64_t kMostJudgements = 64;

}  // namespace

LateRanks::Judgements LateRanks::Latest(Thresholds::Ns time) const {
  // Those at both ends count: so it is one more than there are intervals.
  const int64_t judgements = std::min(time / times_.interval + 1, kMostJudgements);
  return judgements == kMostJudgements ? ~Judgements{0} : (Judgements{1} << judgements) - 1;
}

void LateRanks::Record(const collector::NodeSnapshot& node, const NodeHistory& history,
                       int64_t monotonic_ns) {
  now_ns_ = monotonic_ns;
  Follow(node);
  const int64_t interval = times_.interval.count();
  if (next_judgement_ns_ == 0) next_judgement_ns_ = now_ns_;
  if (now_ns_ < next_judgement_ns_) return;
  // More than one if steps were missed, as in a pause of the machine.
  const int64_t passed = (now_ns_ - next_judgement_ns_) / interval + 1;
  next_judgement_ns_ += passed * interval;
  BeginJudgement(static_cast<int>(std::min(passed, kMostJudgements)));
  const NodeRates rates = RatesOf(node, history, times_);
  lost_gpus_ = LostGpusOf(rates, times_);
  const LateJudgement judgement = JudgeLateRanks(rates, times_);
  for (const collector::CommunicatorKey& key : judgement.uneven) {
    if (CommunicatorMemory* const communicator = Settled(key)) communicator->uneven |= 1;
  }
  for (const LateCandidate& candidate : judgement.candidates)
    Judge(candidate, node.taken_realtime_ns);
  Thresholds strong = times_;
  strong.window = times_.strong_window();
  const LateJudgement brief = JudgeLateRanks(RatesOf(node, history, strong), strong);
  for (const LateCandidate& candidate : brief.candidates)
    JudgeStrong(candidate, node.taken_realtime_ns);
  Confirm();
}

void LateRanks::Follow(const collector::NodeSnapshot& node) {
  for (const CommunicatorOnNode& communicator : CommunicatorsOnNode(node)) {
    const auto [place, is_new] = communicators_.try_emplace(communicator.key);
    CommunicatorMemory& memory = place->second;
    if (is_new) memory.first_seen_ns = now_ns_;
    memory.last_seen_ns = now_ns_;
    memory.is_compared = communicator.ranks.size() > 1;
    memory.has_all_ranks = communicator.ranks.size() == communicator.key.ranks;
  }
  // One that a snapshot missed is still the same.
  std::erase_if(communicators_, [&](const auto& entry) {
    return now_ns_ - entry.second.last_seen_ns > times_.window.count();
  });
}

void LateRanks::BeginJudgement(int judgements_passed) {
  const auto shift = [&](Judgements& judgements) {
    judgements = judgements_passed < kMostJudgements ? judgements << judgements_passed : 0;
  };
  for (auto& [key, communicator] : communicators_) {
    shift(communicator.straggler);
    shift(communicator.uneven);
    shift(communicator.briefly);
    for (auto& [rank, memory] : communicator.ranks) {
      shift(memory.straggler);
      shift(memory.last_arriver);
      shift(memory.briefly);
      shift(memory.strongly);
    }
    // Only ranks that were late lately take memory: a user who makes many communicators does not
    // make this map grow.
    std::erase_if(communicator.ranks, [&](const auto& entry) {
      const RankMemory& memory = entry.second;
      return (memory.straggler | memory.last_arriver | memory.briefly) == 0 &&
             memory.shown_until_ns < now_ns_;
    });
  }
}

LateRanks::CommunicatorMemory* LateRanks::Settled(const collector::CommunicatorKey& key) {
  const auto place = communicators_.find(key);
  if (place == communicators_.end()) return nullptr;
  // Until then a window reaches back to before the communicator was first seen: into the backlog of
  // its completion ring, or the first calls, in which ranks differ by seconds.
  const int64_t settled_ns = (times_.arrivals_window() + times_.window).count();
  return now_ns_ - place->second.first_seen_ns < settled_ns ? nullptr : &place->second;
}

// A gap as long as the time in which lateness must repeat ends a run: what follows is new.
void LateRanks::Begin(int64_t realtime_ns, RankMemory& rank) const {
  const Judgements before = rank.straggler | rank.last_arriver | rank.strongly;
  if ((before & Latest(times_.late_for())) == 0) rank.since_realtime_ns = realtime_ns;
}

void LateRanks::Judge(const LateCandidate& candidate, int64_t realtime_ns) {
  CommunicatorMemory* const communicator = Settled(candidate.communicator);
  if (communicator == nullptr) return;
  RankMemory& rank = communicator->ranks[candidate.rank];
  Begin(realtime_ns, rank);
  if (candidate.measures.is_straggler) {
    rank.straggler |= 1;
    communicator->straggler |= 1;
  }
  if (candidate.measures.is_last_arriver) rank.last_arriver |= 1;
  rank.measures = candidate.measures;
}

void LateRanks::JudgeStrong(const LateCandidate& candidate, int64_t realtime_ns) {
  const LateMeasures& measures = candidate.measures;
  CommunicatorMemory* const communicator = Settled(candidate.communicator);
  if (communicator == nullptr || !measures.is_straggler) return;
  RankMemory& rank = communicator->ranks[candidate.rank];
  rank.briefly |= 1;
  communicator->briefly |= 1;
  if (!measures.is_alone || measures.cost < times_.strong_deficit ||
      measures.timed_operations < static_cast<uint64_t>(times_.least_operations))
    return;
  Begin(realtime_ns, rank);
  rank.strongly |= 1;
  rank.strong_measures = measures;
}

// The conditions of the alerts: 6 of 13 judgements, or 3 strong ones in a row, and three quarters
// of those that found anybody; or a last arriver in 7 judgements without a gap. In the rules the
// first of the strong ones may be weaker.
void LateRanks::Confirm() {
  const int hold = static_cast<int>(times_.hold / times_.interval);
  const Judgements latest = Latest(times_.late_for()), past = Latest(times_.history);
  const Judgements strong_run = (Judgements{1} << times_.strong_evaluations) - 1;
  const Judgements unbroken = Latest(times_.hold);
  // Unequal work makes now this rank late, now that one.
  const auto is_usual = [&](Judgements of_rank, Judgements of_any) {
    return std::popcount(of_rank & past) >= kShareOfJudgements * std::popcount(of_any & past);
  };
  for (auto& [key, communicator] : communicators_) {
    if (now_ns_ - communicator.first_seen_ns < times_.warm_up.count()) continue;
    const auto of_job = lost_gpus_.find(JobKeyOf(key));
    const LostGpus lost = of_job == lost_gpus_.end() ? LostGpus() : of_job->second;
    for (auto& [number, rank] : communicator.ranks) {
      const bool is_often = (rank.straggler & 1) != 0 &&
                            std::popcount(rank.straggler & latest) >= hold &&
                            is_usual(rank.straggler, communicator.straggler);
      const bool is_strong =
          communicator.has_all_ranks && (rank.strongly & strong_run) == strong_run &&
          std::popcount(communicator.uneven & ~rank.straggler & past) <= times_.most_uneven() &&
          is_usual(rank.briefly, communicator.briefly);
      const bool is_last_arriver = (rank.last_arriver & unbroken) == unbroken;
      if (!is_often && !is_strong && !is_last_arriver) continue;
      // A rank that is late at the edge of a threshold is found in every other judgement: it stays
      // for as long as the alert is held.
      rank.shown_until_ns = now_ns_ + times_.hold.count();
      const bool is_by_strong = is_strong && !is_often;
      const Judgements shown = is_by_strong ? rank.strongly : rank.straggler | rank.last_arriver;
      const Judgements of = is_by_strong ? strong_run : latest;
      rank.shown = {.communicator = key,
                    .rank = number,
                    .measures = is_by_strong ? rank.strong_measures : rank.measures,
                    .since_realtime_ns = rank.since_realtime_ns,
                    .late_judgements = std::popcount(shown & of),
                    .judgements = std::popcount(of),
                    .window = is_by_strong ? times_.strong_window() : times_.window,
                    .lost = lost};
      rank.shown.measures.is_straggler = is_often || is_strong;
      rank.shown.measures.is_last_arriver = is_last_arriver;
    }
  }
}

std::vector<Finding> LateRanks::Findings(const collector::NodeSnapshot& node) const {
  std::vector<LateRank> late;
  for (const auto& [key, communicator] : communicators_) {
    for (const auto& [number, rank] : communicator.ranks) {
      if (rank.shown_until_ns != 0 && now_ns_ <= rank.shown_until_ns) late.push_back(rank.shown);
    }
  }
  return LateFindings(node, late);
}

double LateRanks::LearningSeconds() const {
  int64_t latest = now_ns_ - times_.warm_up.count();
  for (const auto& [key, communicator] : communicators_) {
    if (communicator.is_compared) latest = std::max(latest, communicator.first_seen_ns);
  }
  return static_cast<double>(times_.warm_up.count() - (now_ns_ - latest)) / 1e9;
}

}  // namespace nccl_exporter::exporter
