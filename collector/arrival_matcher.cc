// SPDX-License-Identifier: Apache-2.0
// Groups of ranks, operations that wait for their partners, and the comparison.
#include "collector/arrival_matcher.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace nccl_exporter {

// An operation on one rank.
struct ArrivalMatcher::Arrival {
  Member* member;
  CompletedOperation operation;
  TimeRange start;  // as calls and deliveries bind it
  TimeRange stop;
};

struct ArrivalMatcher::Waiting {
  uint64_t since_ns = 0;
  std::vector<Arrival> arrivals;
};

// The ranks of one communicator on this node.
struct ArrivalMatcher::Group {
  std::vector<Member*> members;
  std::unordered_map<uint64_t, Waiting> waiting;  // by function and sequence
  bool has_rank_twice = false;
  bool is_timed = false;  // on every rank
  ClockDifferences clocks;

  void Judge();
  void LearnFrom(const std::vector<Arrival>& arrivals);
  TimeRange DistanceOf(const Arrival& one, const Arrival& other) const;
};

class ArrivalMatcher::Member {
 public:
  LocalRank rank;
  Group* group;
  size_t number = 0;  // in its group
  std::shared_ptr<GpuClockBounds> clock;
  ArrivalCounts counts;
  // The last operation, by which the call of the next launch is bound from below.
  uint64_t former_call_ns = 0;
  uint64_t former_stop_ns = 0;
};

namespace {

// Whether no rank can leave the operation before every rank has entered it.
bool WaitsForAll(Function function) {
  return function == Function::kAllReduce || function == Function::kAllGather || function == Function::kReduceScatter ||
         function == Function::kAlltoAll;
}

constexpr TimeRange kUnbound{-ClockDifferences::kUnknown, ClockDifferences::kUnknown};

int64_t AsOf(const CompletedOperation& operation) { return ClockDifferences::Difference(operation.delivered_ns, 0); }

// At or before which time the kernel was launched, if that is known. Where the call itself is announced after the
// launch, the call of an operation that was over before this one began was earlier: the operations of a communicator
// are launched in order.
template <typename Member>
std::optional<uint64_t> CalledAt(const Member& member, const CompletedOperation& operation) {
  if (member.rank.call_is_bound) return operation.call_ns;
  const bool is_earlier_launch = member.former_call_ns != 0 && member.former_stop_ns <= operation.start_ns;
  return is_earlier_launch ? std::optional(member.former_call_ns) : std::nullopt;
}

}  // namespace

ArrivalMatcher::ArrivalMatcher() = default;
ArrivalMatcher::~ArrivalMatcher() = default;

void ArrivalMatcher::Group::Judge() {
  std::vector<uint64_t> ranks;
  for (size_t i = 0; i < members.size(); ++i) {
    members[i]->number = i;
    ranks.push_back(members[i]->rank.rank);
  }
  clocks.Reset(members.size());
  std::ranges::sort(ranks);
  has_rank_twice = std::ranges::adjacent_find(ranks) != ranks.end();
  is_timed = std::ranges::all_of(members, [](const Member* member) { return member->rank.has_kernel_times; });
}

ArrivalMatcher::Member* ArrivalMatcher::Add(const LocalRank& rank) {
  std::shared_ptr<GpuClockBounds> clock;
  if (!rank.gpu_uuid.empty()) clock = clocks_[{rank.communicator.uid, rank.gpu_uuid}].lock();
  if (clock == nullptr) clock = std::make_shared<GpuClockBounds>();
  if (!rank.gpu_uuid.empty()) clocks_[{rank.communicator.uid, rank.gpu_uuid}] = clock;
  Group& group = groups_[rank.communicator];
  GiveUp(group, Uncompared::kPartnerMissing);
  Member& member = members_.emplace_back();
  member.rank = rank;
  member.group = &group;
  member.clock = std::move(clock);
  group.members.push_back(&member);
  group.Judge();
  return &member;
}

void ArrivalMatcher::Remove(Member* member) {
  Group& group = *member->group;
  GiveUp(group, Uncompared::kPartnerMissing);
  std::erase(group.members, member);
  group.Judge();
  if (group.members.empty()) groups_.erase(member->rank.communicator);
  std::erase_if(members_, [&](const Member& other) { return &other == member; });
  std::erase_if(clocks_, [](const auto& clock) { return clock.second.expired(); });
}

void ArrivalMatcher::SetHasKernelTimes(Member* member, bool has_kernel_times) {
  if (member->rank.has_kernel_times == has_kernel_times) return;
  member->rank.has_kernel_times = has_kernel_times;
  member->group->Judge();
}

bool ArrivalMatcher::IsComparable(const Member* member) {
  return member->rank.has_kernel_times && member->group->members.size() > 1;
}

const ArrivalCounts& ArrivalMatcher::CountsOf(const Member* member) { return member->counts; }

void ArrivalMatcher::CountLost(const Member* member, uint64_t operations) {
  if (IsComparable(member)) Count(Uncompared::kRingOverrun, operations);
}

void ArrivalMatcher::Take(Member* member, const CompletedOperation& operation, uint64_t now_ns) {
  Group& group = *member->group;
  if (!IsComparable(member)) return;
  member->clock->Learn(CalledAt(*member, operation), operation.start_ns, operation.stop_ns, operation.delivered_ns);
  member->former_call_ns = operation.call_ns;
  member->former_stop_ns = operation.stop_ns;
  if (TraitsOf(operation.function()).is_point_to_point) return;
  if (group.has_rank_twice) return Count(Uncompared::kRankTwice, 1);
  if (!group.is_timed) return Count(Uncompared::kPartnerMissing, 1);
  // By the bounds of now: later ones are closer, but of another time.
  const std::optional<TimeRange> start = member->clock->RangeOf(operation.start_ns, operation.delivered_ns);
  const std::optional<TimeRange> stop = member->clock->RangeOf(operation.stop_ns, operation.delivered_ns);

  if (group.waiting.size() >= kMaxWaitingOperations) GiveUp(group, Uncompared::kPartnerMissing);
  const auto found = group.waiting.try_emplace(operation.function_and_sequence).first;
  Waiting& waiting = found->second;
  const bool is_again = std::ranges::any_of(waiting.arrivals, [&](const Arrival& a) { return a.member == member; });
  if (is_again) {  // the number does not name the operation
    Count(Uncompared::kMismatch, waiting.arrivals.size());
    waiting.arrivals.clear();
  }
  if (waiting.arrivals.empty()) {
    waiting.since_ns = now_ns;
    waiting.arrivals.reserve(group.members.size());
  }
  waiting.arrivals.push_back(
      {.member = member, .operation = operation, .start = start.value_or(kUnbound), .stop = stop.value_or(kUnbound)});
  if (waiting.arrivals.size() < group.members.size()) return;
  Compare(group, waiting.arrivals);
  group.waiting.erase(found);
}

void ArrivalMatcher::Group::LearnFrom(const std::vector<Arrival>& arrivals) {
  for (const Arrival& one : arrivals) {
    for (const Arrival& other : arrivals) {
      if (&one == &other) continue;
      clocks.Learn(one.member->number, one.operation.start_ns, other.member->number, other.operation.stop_ns,
                   AsOf(other.operation));
    }
  }
}

// By how much `one` started later than `other`: bound by the host's clock and by former operations.
TimeRange ArrivalMatcher::Group::DistanceOf(const Arrival& one, const Arrival& other) const {
  const int64_t shown_ns = ClockDifferences::Difference(one.operation.start_ns, other.operation.start_ns);
  const int64_t as_of_ns = AsOf(one.operation);
  const size_t first = one.member->number, second = other.member->number;
  return {.least_ns = std::max(one.start.least_ns - other.start.most_ns,
                               shown_ns + clocks.LeastOf(first, second, as_of_ns) - GpuClockBounds::kTickNs),
          .most_ns = std::min(one.start.most_ns - other.start.least_ns,
                              shown_ns - clocks.LeastOf(second, first, as_of_ns) + GpuClockBounds::kTickNs)};
}

void ArrivalMatcher::Compare(Group& group, const std::vector<Arrival>& arrivals) {
  const auto entered_last = std::ranges::max_element(arrivals, {}, [](const Arrival& a) { return a.start.least_ns; });
  const auto left_first = std::ranges::min_element(arrivals, {}, [](const Arrival& a) { return a.stop.most_ns; });
  if (WaitsForAll(arrivals.front().operation.function())) {
    if (entered_last->start.least_ns > left_first->stop.most_ns) return Count(Uncompared::kMismatch, arrivals.size());
    group.LearnFrom(arrivals);
  }
  const auto about = [&](const Arrival& arrival) {
    return &arrival == &arrivals.front() ? 0 : group.DistanceOf(arrival, arrivals.front()).Middle();
  };
  const Arrival& first = *std::ranges::min_element(arrivals, {}, about);
  const Arrival& last = *std::ranges::max_element(arrivals, {}, about);
  const auto is_later = [&](const Arrival& one, const Arrival& other) {
    return &one != &other && group.DistanceOf(one, other).least_ns > 0;
  };
  if (!is_later(last, first)) return Count(Uncompared::kUncertainClocks, arrivals.size());
  bool is_certainly_last = true;
  for (const Arrival& arrival : arrivals) {
    ArrivalCounts& counts = arrival.member->counts;
    ++counts.compared;
    if (is_later(arrival, first)) {
      const int64_t lateness_ns = group.DistanceOf(arrival, first).Middle();
      counts.lateness_ns += static_cast<uint64_t>(std::max<int64_t>(lateness_ns, 0)) / arrival.operation.members;
    }
    is_certainly_last = is_certainly_last && (&arrival == &last || is_later(last, arrival));
  }
  if (is_certainly_last) ++last.member->counts.last;
}

void ArrivalMatcher::GiveUp(Group& group, Uncompared cause) {
  for (const auto& [number, waiting] : group.waiting) Count(cause, waiting.arrivals.size());
  group.waiting.clear();
}

void ArrivalMatcher::Expire(uint64_t now_ns) {
  for (auto& [key, group] : groups_) {
    std::erase_if(group.waiting, [&, this](const auto& entry) {
      const bool is_over = now_ns > entry.second.since_ns + kPartnerPatienceNs;
      if (is_over) Count(Uncompared::kPartnerMissing, entry.second.arrivals.size());
      return is_over;
    });
  }
}

}  // namespace nccl_exporter
