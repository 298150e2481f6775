// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/late_ranks.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <iterator>

#include "exporter/findings/late/busy_rates.h"
#include "exporter/ledger/local_communicators.h"

namespace nccl_exporter::exporter {
namespace {

// A straggler is one in so much of the judgements in which any rank of the job is.
constexpr double kShareOfJudgements = 0.75;
// Bits of Judgements; `history` has 40.
constexpr int64_t kMostJudgements = 64;
// Usual times are taken in one of so many: group nccl_ranks is evaluated as seldom.
constexpr int64_t kJudgementsPerUsualTime = 4;

// Load that moves on costs less than this part of what it cost.
constexpr double kLeastOfCosts = 0.75;

// The others wait longer by this part of what a late rank costs, at least; the rest is chance.
constexpr double kShareOfCost = 0.25;

// Values by judgement, the latest first: those of the judgements since are 0.
void Shift(std::vector<double>& values, int judgements) {
  const size_t passed = std::min(static_cast<size_t>(judgements), values.size());
  std::rotate(values.begin(), values.end() - static_cast<ptrdiff_t>(passed), values.end());
  std::fill_n(values.begin(), passed, 0);
}

}  // namespace

LateRanks::Judgements LateRanks::Latest(Thresholds::Ns time) const {
  // Judgements at both ends count.
  const int64_t judgements = std::min(time / times_.interval + 1, kMostJudgements);
  return judgements == kMostJudgements ? ~Judgements{0} : (Judgements{1} << judgements) - 1;
}

void LateRanks::Record(const collector::NodeSnapshot& node, const NodeHistory& history,
                       int64_t monotonic_ns) {
  now_ns_ = monotonic_ns;
  host_.Record(node, monotonic_ns);
  Follow(node);
  const int64_t interval = times_.interval.count();
  if (next_judgement_ns_ == 0) next_judgement_ns_ = now_ns_;
  if (now_ns_ < next_judgement_ns_) return;
  // More than one if steps were missed, as in a pause of the machine.
  const int64_t passed = (now_ns_ - next_judgement_ns_) / interval + 1;
  next_judgement_ns_ += passed * interval;
  BeginJudgement(static_cast<int>(std::min(passed, kMostJudgements)));
  NodeRates rates = RatesOf(node, history, times_);
  lost_gpus_ = LostGpusOf(rates, times_);
  FollowJobs(rates);
  SubtractUsual(rates);
  const LateJudgement judgement = JudgeLateRanks(rates, times_);
  for (const collector::CommunicatorKey& key : judgement.uneven) jobs_[JobKeyOf(key)].late |= 1;
  for (const LateCandidate& candidate : judgement.candidates)
    Judge(candidate, node.taken_realtime_ns);
  Confirm(node);
}

void LateRanks::Follow(const collector::NodeSnapshot& node) {
  for (const CommunicatorOnNode& communicator : CommunicatorsOnNode(node)) {
    const auto [place, is_new] = communicators_.try_emplace(communicator.key);
    CommunicatorMemory& memory = place->second;
    if (is_new) memory.first_seen_ns = now_ns_;
    memory.last_seen_ns = now_ns_;
    memory.is_compared = communicator.ranks.size() > 1;
    for (const RankOnNode& rank : communicator.ranks) {
      ProcessMemory& process = processes_[rank.gpu()];
      if (process.first_seen_ns == 0) process.first_seen_ns = now_ns_;
      process.last_seen_ns = now_ns_;
      process.is_compared |= memory.is_compared;
    }
  }
  // A communicator or process that a snapshot missed is still the same.
  const auto is_gone = [&](const auto& entry) {
    return now_ns_ - entry.second.last_seen_ns > times_.window.count();
  };
  std::erase_if(communicators_, is_gone);
  std::erase_if(processes_, is_gone);
}

void LateRanks::BeginJudgement(int judgements_passed) {
  const auto shift = [&](auto&... judgements) {
    ((judgements = judgements_passed < kMostJudgements ? judgements << judgements_passed : 0), ...);
  };
  for (auto& [key, process] : processes_) {
    shift(process.straggler);
    Shift(process.costs, judgements_passed);
  }
  for (auto& [key, job] : jobs_) {
    shift(job.straggler, job.late);
    Shift(job.busy, judgements_passed);
  }
  std::erase_if(jobs_, [](const auto& entry) {
    const JobMemory& job = entry.second;
    return job.late == 0 && std::ranges::all_of(job.busy, [](double busy) { return busy == 0; });
  });
  for (auto& [key, communicator] : communicators_) {
    for (auto& [rank, memory] : communicator.ranks) {
      shift(memory.late, memory.straggler, memory.last_arriver);
    }
    // Ranks that were not late lately take no memory.
    std::erase_if(communicator.ranks, [&](const auto& entry) {
      const RankMemory& memory = entry.second;
      return (memory.late | memory.last_arriver) == 0 && memory.shown_until_ns < now_ns_;
    });
  }
}

void LateRanks::FollowJobs(const NodeRates& rates) {
  std::map<JobKey, std::map<size_t, double>> busy;  // by process
  for (const PeerRates& peers : rates.peers) {
    const JobKey job = JobKeyOf(peers.key);
    jobs_[job].has_more_nodes |= peers.spans_nodes;
    if (Settled(peers.key, times_.window) == nullptr) continue;
    for (const RankRates& rank : peers.ranks)
      busy[job][rank.process] = rates.processes[rank.process].busy;
  }
  for (const auto& [job, of_processes] : busy) {
    std::vector<double> values;
    for (const auto& [process, value] : of_processes) values.push_back(value);
    JobMemory& memory = jobs_[job];
    memory.busy.resize(static_cast<size_t>(std::popcount(Latest(times_.history))));
    memory.busy.front() = UsualOf(values);
  }
}

bool LateRanks::WaitsMore(const JobMemory& job, double cost) const {
  double sum = 0;
  int even = 0, uneven = 0;
  for (size_t i = 0; i < job.busy.size(); ++i) {
    if (job.busy[i] == 0) continue;
    const bool is_uneven = ((job.late >> i) & 1) != 0;
    ++(is_uneven ? uneven : even);
    if (!is_uneven) sum += job.busy[i];
  }
  return uneven >= kShareOfJudgements * (even + uneven) ||
         job.busy.front() - sum / even >= kShareOfCost * cost;
}

void LateRanks::SubtractUsual(NodeRates& rates) {
  const int64_t number = now_ns_ / (kJudgementsPerUsualTime * times_.interval).count();
  const bool is_recorded = std::exchange(usual_number_, number) != number;
  const int64_t most = times_.history / (kJudgementsPerUsualTime * times_.interval);
  for (PeerRates& peers : rates.peers) {
    if (!peers.is_pipeline) continue;
    CommunicatorMemory& memory = communicators_[peers.key];
    if (is_recorded) memory.usual.Record(peers, rates.processes, number, most);
    if (Settled(peers.key, times_.warm_up) == nullptr) continue;
    const bool was_late = std::ranges::any_of(
        memory.ranks, [](const auto& entry) { return (entry.second.late & 2) != 0; });
    if (is_recorded && !was_late) memory.usual.Settle();
    memory.usual.SubtractFrom(peers, rates.processes);
  }
}

LateRanks::CommunicatorMemory* LateRanks::Settled(const collector::CommunicatorKey& key,
                                                  Thresholds::Ns window) {
  const auto place = communicators_.find(key);
  if (place == communicators_.end()) return nullptr;
  return now_ns_ - place->second.first_seen_ns < window.count() ? nullptr : &place->second;
}

void LateRanks::Judge(LateCandidate candidate, int64_t realtime_ns) {
  CommunicatorMemory* const communicator = Settled(candidate.communicator, times_.window);
  if (communicator == nullptr) return;
  RankMemory& rank = communicator->ranks[candidate.rank];
  ProcessMemory& process = processes_[candidate.gpu];
  rank.gpu = candidate.gpu;
  LateMeasures& measures = candidate.measures;
  if (Settled(candidate.communicator, times_.arrivals_window() + times_.window) == nullptr)
    measures.is_last_arriver = false;
  if (measures.is_straggler || measures.is_last_arriver) {
    // A run ends after late_for() in which the rank was not late.
    const bool is_new = ((process.straggler | rank.last_arriver) & Latest(times_.late_for())) == 0;
    if (is_new) process.late_since_realtime_ns = realtime_ns;
    static_cast<LateCandidate&>(rank.taken) = candidate;
    rank.taken.since_realtime_ns = process.late_since_realtime_ns;
  }
  JobMemory& job = jobs_[JobKeyOf(candidate.communicator)];
  if (measures.is_late) rank.late |= 1;
  if (measures.is_late || measures.is_last_arriver) job.late |= 1;
  if (measures.is_straggler) {
    rank.straggler |= 1;
    process.straggler |= 1;
    process.costs.resize(static_cast<size_t>(std::popcount(Latest(times_.hold))));
    process.costs.front() = std::max(process.costs.front(), measures.cost);
    job.straggler |= 1;
  }
  if (measures.is_last_arriver) rank.last_arriver |= 1;
}

// Conditions of the alerts: late in late_judgements() of late_for(), and no less than a while ago;
// or a last arriver in all judgements of `hold`; and kShareOfJudgements.
void LateRanks::Confirm(const collector::NodeSnapshot& node) {
  const Judgements latest = Latest(times_.late_for()), past = Latest(times_.history);
  const Judgements unbroken = Latest(times_.hold);
  for (auto& [key, communicator] : communicators_) {
    const JobMemory& job = jobs_[JobKeyOf(key)];
    const auto of_job = lost_gpus_.find(JobKeyOf(key));
    const LostGpus lost = of_job == lost_gpus_.end() ? LostGpus() : of_job->second;
    for (auto& [number, rank] : communicator.ranks) {
      const ProcessMemory& process = processes_[rank.gpu];
      if (now_ns_ - process.first_seen_ns < times_.warm_up.count()) continue;
      // Unequal work makes now this rank late, now that one: process:nccl_straggler:seldom.
      const Judgements straggler = process.straggler & past;
      const bool is_seldom =
          straggler != 0 &&
          std::popcount(straggler) < kShareOfJudgements * std::popcount(job.straggler & past);
      if (job.has_more_nodes && !WaitsMore(job, rank.taken.measures.cost)) continue;
      const bool is_straggler =
          (rank.straggler & 1) != 0 && !is_seldom &&
          std::popcount(process.straggler & latest) >= times_.late_judgements() &&
          process.costs.front() >= kLeastOfCosts * std::ranges::max(process.costs);
      const bool is_last_arriver = (rank.last_arriver & unbroken) == unbroken && !is_seldom;
      if (!is_straggler && !is_last_arriver) continue;
      // A rank that is late at the edge of a threshold is found in every other judgement: it stays
      // for as long as the alert keeps firing.
      rank.shown_until_ns = now_ns_ + times_.shown_for().count();
      rank.shown = rank.taken;
      rank.shown.found_realtime_ns = node.taken_realtime_ns;
      rank.shown.late_judgements = std::popcount((process.straggler | rank.last_arriver) & latest);
      rank.shown.lost = lost;
      const auto process_here =
          std::ranges::find(node.processes, rank.gpu.first, &collector::ProcessSnapshot::file);
      if (process_here != node.processes.end())
        rank.shown.unusual = host_.Unusual(node, *process_here);
      rank.shown.measures.is_straggler = is_straggler;
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
  return LateFindings(node, late, times_);
}

double LateRanks::LearningSeconds() const {
  int64_t ready_ns = now_ns_;
  const auto follow = [&](const auto& memory, Thresholds::Ns time) {
    if (memory.is_compared) ready_ns = std::max(ready_ns, memory.first_seen_ns + time.count());
  };
  for (const auto& [key, communicator] : communicators_) follow(communicator, times_.window);
  for (const auto& [key, process] : processes_) follow(process, times_.warm_up);
  return static_cast<double>(ready_ns - now_ns_) / 1e9;
}

}  // namespace nccl_exporter::exporter
