// SPDX-License-Identifier: Apache-2.0
#include "exporter/ledger/step_counter.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace nccl_exporter::exporter {
namespace {

// Operations by which another collective must be rarer in two periods: counts of two that occur
// once per step differ by one at most.
constexpr uint64_t kRarerBy = 2;

bool IsCollective(const OperationKind& kind) {
  return collector::TrafficOf(kind.function) == collector::Traffic::kCollective;
}

// One that occurs once per longest step is in a period as often as that fits, rounded down.
bool IsRegular(uint64_t operations, int64_t period_ns, const LedgerTimes& times) {
  return (static_cast<double>(operations) + 1) * static_cast<double>(times.longest_step_ns) >
         static_cast<double>(period_ns);
}

}  // namespace

void StepCounter::Advance(TimesByOperation& operations,
                          const std::map<OperationKind, uint64_t>& more,
                          const std::vector<collector::RecentOperation>& recent, double decay,
                          const Moment& now, const LedgerTimes& times) {
  uint64_t steps = 0;
  if (counts_) {
    const auto found = more.find(choice_);
    if (found != more.end()) steps = found->second;
  }
  const int64_t period_ns = now.monotonic_ns - period_start_ns_;
  if (period_ns >= times.longest_step_ns) {
    steps += EndPeriod(operations, period_ns, times);
    period_start_ns_ = now.monotonic_ns;
    last_period_ns_ = period_ns;
  }
  places_.See(recent, decay);
  if (steps != 0) Count(steps, operations);
}

uint64_t StepCounter::EndPeriod(TimesByOperation& operations, int64_t period_ns,
                                const LedgerTimes& times) {
  for (auto& [key, one] : operations) {
    one.SetRegular(last_period_ns_ != 0 && IsCollective(key) && one.InThisPeriod() != 0 &&
                   one.InLastPeriod() != 0 && IsRegular(one.InThisPeriod(), period_ns, times) &&
                   IsRegular(one.InLastPeriod(), last_period_ns_, times));
  }
  const bool is_first = !counts_;
  // The operations of both periods were steps, and were not counted.
  uint64_t uncounted = 0;
  if (Choose(operations) && is_first) uncounted = operations.find(choice_)->second.InBothPeriods();
  if (counts_) {
    ChooseWaits(operations);
    LearnPlaces(operations);
  }
  for (auto& [key, one] : operations) one.EndPeriod();
  return uncounted;
}

bool StepCounter::Choose(const TimesByOperation& operations) {
  const auto rarest = std::ranges::min_element(operations, {}, [](const auto& item) {
    return item.second.is_regular() ? item.second.InBothPeriods() : ~uint64_t{0};
  });
  if (rarest == operations.end() || !rarest->second.is_regular()) return false;
  const auto chosen = operations.find(choice_);
  if (counts_ && chosen != operations.end() && chosen->second.is_regular() &&
      rarest->second.InBothPeriods() + kRarerBy > chosen->second.InBothPeriods())
    return false;
  if (!counts_) counts_.emplace();
  choice_ = rarest->first;
  return true;
}

// A kind keeps its place while it is regular. Then all ranks have the same kinds, although their
// periods end at different moments.
void StepCounter::ChooseWaits(const TimesByOperation& operations) {
  std::map<OperationKind, uint64_t>& waits_ns = counts_->waits_ns;
  std::vector<std::pair<uint64_t, OperationKind>> others;  // that have no place
  for (const auto& [key, one] : operations) {
    if (!one.is_regular() || waits_ns.contains(key)) continue;
    others.emplace_back(one.seen().bytes, key);
  }
  std::ranges::sort(others, std::greater<>());
  for (const auto& [bytes, key] : others) {
    if (waits_ns.size() >= kMostStepWaits) {
      const auto past = std::ranges::find_if(waits_ns, [&](const auto& item) {
        const auto one = operations.find(item.first);
        return one == operations.end() || !one->second.is_regular();
      });
      if (past == waits_ns.end()) return;
      waits_ns.erase(past);
    }
    waits_ns.emplace(key, 0);
  }
}

// All sizes of a function share its numbers.
void StepCounter::LearnPlaces(const TimesByOperation& operations) {
  const auto chosen = operations.find(choice_);
  if (chosen == operations.end()) return;
  std::map<Function, uint64_t> counts;
  for (const auto& [key, one] : operations) {
    if (IsCollective(key)) counts[key.function] += one.InBothPeriods();
  }
  for (const auto& [function, count] : counts)
    places_.Learn(function, count, chosen->second.InBothPeriods());
}

void StepCounter::Count(uint64_t steps, const TimesByOperation& operations) {
  counts_->steps += steps;
  for (auto& [key, sum_ns] : counts_->waits_ns) {
    const auto one = operations.find(key);
    if (one == operations.end() || !one->second.is_regular()) continue;
    // A sum beyond what a word holds takes a forged segment.
    const double wait_ns =
        one->second.mean_ns() * places_.LongestToMean(key) * static_cast<double>(steps);
    if (wait_ns < 1e18) sum_ns += static_cast<uint64_t>(std::llround(wait_ns));
  }
}

}  // namespace nccl_exporter::exporter
