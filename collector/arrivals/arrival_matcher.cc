// SPDX-License-Identifier: Apache-2.0
// Groups of ranks, operations that wait for their partners, and the comparison.
#include "collector/arrivals/arrival_matcher.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "proto/waits_for_all.h"

namespace nccl_exporter::collector {

// The clock of one GPU, as all communicators of this user on that GPU have learned it.
struct ArrivalMatcher::Clock {
  ClockNumber number;
  GpuClockBounds bounds;
  FastestDeliveries deliveries;
};

// An operation on one rank.
struct ArrivalMatcher::Arrival {
  Member* member;
  CompletedOperation operation;
  TimeRange start;  // as calls and deliveries bind it
  TimeRange stop;
  std::optional<FastestDeliveries::Estimate> clock;

  int64_t DurationNs() const {
    return ClockPair::Difference(operation.stop_ns, operation.start_ns);
  }
};

// An operation that some ranks of this node have completed, and others not yet. `since_ns`: when
// the first of them was read.
struct ArrivalMatcher::Waiting {
  uint64_t since_ns = 0;
  std::vector<Arrival> arrivals;
};

// By how much one rank started later than another one.
struct ArrivalMatcher::Distance {
  TimeRange proven;
  std::optional<TimeRange> estimated;  // where the witnesses agree, within what is proven
  bool is_estimated_later = false;

  bool IsProvenLater() const { return proven.least_ns > 0; }
  bool IsLater() const { return IsProvenLater() || is_estimated_later; }
  int64_t Middle() const { return estimated.value_or(proven).Middle(); }
};

// The ranks of one communicator on this node.
struct ArrivalMatcher::Group {
  std::vector<Member*> members;
  std::unordered_map<uint64_t, Waiting> waiting;  // by function and sequence
  bool has_rank_twice = false;
  bool is_timed = false;         // on every rank
  std::vector<ClockPair> pairs;  // of each member with each; empty: not looked up yet

  const ClockPair& PairOf(const Arrival& one, const Arrival& other) const;
  void LearnFrom(const std::vector<Arrival>& arrivals) const;
  Distance DistanceOf(const Arrival& one, const Arrival& other,
                      std::optional<int64_t> transfer_ns) const;
};

class ArrivalMatcher::Member {
 public:
  LocalRank rank;
  Group* group;
  size_t number = 0;  // in its group
  std::shared_ptr<Clock> clock;
  ArrivalCounts counts;
  ArrivalUncertainty uncertainty;
  // The last operation, by which the call of the next launch is bound from below.
  uint64_t former_call_ns = 0;
  uint64_t former_stop_ns = 0;
};

namespace {

// Range of a clock of which nothing is known yet.
constexpr TimeRange kUnbound{-ClockDistance::kUnknown, ClockDistance::kUnknown};

int64_t AsOf(const CompletedOperation& operation) {
  return ClockPair::Difference(operation.delivered_ns, 0);
}

TimeRange Around(int64_t middle_ns, int64_t uncertainty_ns) {
  return {middle_ns - uncertainty_ns, middle_ns + uncertainty_ns};
}

// Range that both allow; its ends change places if they have nothing in common.
TimeRange Common(const TimeRange& one, const TimeRange& other) {
  return {std::max(one.least_ns, other.least_ns), std::min(one.most_ns, other.most_ns)};
}

// Nothing for a range that contradicts itself, or that one side leaves open.
std::optional<uint64_t> HalfWidth(const TimeRange& range) {
  const int64_t width_ns = range.most_ns - range.least_ns;
  if (width_ns < 0 || width_ns >= ClockDistance::kUnknown / 2) return std::nullopt;
  return static_cast<uint64_t>(width_ns) / 2;
}

// At or before which time the kernel was launched, if that is known. Where the call itself is
// announced after the launch, the call of an operation that was over before this one began was
// earlier: the operations of a communicator are launched in order.
template <typename Member>
std::optional<uint64_t> CalledAt(const Member& member, const CompletedOperation& operation) {
  if (member.rank.call_is_bound) return operation.call_ns;
  const bool is_earlier_launch =
      member.former_call_ns != 0 && member.former_stop_ns <= operation.start_ns;
  return is_earlier_launch ? std::optional(member.former_call_ns) : std::nullopt;
}

}  // namespace

ArrivalMatcher::ArrivalMatcher() = default;
ArrivalMatcher::~ArrivalMatcher() = default;

// A number that stands twice belongs to two jobs with one communicator's hash, or to a restart
// whose former process is not gone yet. Nothing shows which completion belongs to which.
void ArrivalMatcher::Judge(Group& group) {
  std::vector<uint64_t> ranks;
  group.pairs.clear();
  for (size_t i = 0; i < group.members.size(); ++i) {
    Member& member = *group.members[i];
    member.number = i;
    ranks.push_back(member.rank.rank);
  }
  std::ranges::sort(ranks);
  group.has_rank_twice = std::ranges::adjacent_find(ranks) != ranks.end();
  group.is_timed = std::ranges::all_of(
      group.members, [](const Member* member) { return member->rank.has_kernel_times; });
}

// When they are needed first: ranks come one after the other.
void ArrivalMatcher::PairClocks(Group& group) {
  if (!group.pairs.empty()) return;
  group.pairs.reserve(group.members.size() * group.members.size());
  for (const Member* one : group.members) {
    for (const Member* other : group.members) {
      group.pairs.push_back(differences_.Of(one->clock->number, other->clock->number));
    }
  }
}

// Operations that wait were counted against the earlier members: they cannot become complete any
// more.
ArrivalMatcher::Member* ArrivalMatcher::Add(const LocalRank& rank) {
  std::shared_ptr<Clock> clock;
  // A GPU without a name has a clock of its own for each communicator: more is not known of it.
  if (!rank.gpu_uuid.empty()) clock = clocks_[{rank.communicator.uid, rank.gpu_uuid}].lock();
  if (clock == nullptr) {
    clock = std::make_shared<Clock>();
    clock->number = {.uid = rank.communicator.uid, .number = ++clock_numbers_};
  }
  if (!rank.gpu_uuid.empty()) clocks_[{rank.communicator.uid, rank.gpu_uuid}] = clock;
  Group& group = groups_[rank.communicator];
  GiveUp(group, Uncompared::kPartnerMissing);
  Member& member = members_.emplace_back();
  member.rank = rank;
  member.group = &group;
  member.clock = std::move(clock);
  group.members.push_back(&member);
  Judge(group);
  return &member;
}

void ArrivalMatcher::Remove(Member* member) {
  Group& group = *member->group;
  GiveUp(group, Uncompared::kPartnerMissing);
  std::erase(group.members, member);
  Judge(group);
  if (group.members.empty()) groups_.erase(member->rank.communicator);
  if (member->clock.use_count() == 1) differences_.Forget(member->clock->number);
  std::erase_if(members_, [&](const Member& other) { return &other == member; });
  std::erase_if(clocks_, [](const auto& clock) { return clock.second.expired(); });
}

void ArrivalMatcher::SetHasKernelTimes(Member* member, bool has_kernel_times) {
  if (member->rank.has_kernel_times == has_kernel_times) return;
  member->rank.has_kernel_times = has_kernel_times;
  Judge(*member->group);
}

bool ArrivalMatcher::IsComparable(const Member* member) {
  return member->rank.has_kernel_times && member->group->members.size() > 1;
}

const ArrivalCounts& ArrivalMatcher::CountsOf(const Member* member) { return member->counts; }

const ArrivalUncertainty& ArrivalMatcher::UncertaintyOf(const Member* member) {
  return member->uncertainty;
}

void ArrivalMatcher::CountLost(const Member* member, uint64_t operations) {
  if (IsComparable(member)) Count(Uncompared::kRingOverrun, operations);
}

void ArrivalMatcher::Take(Member* member, const CompletedOperation& operation, uint64_t now_ns) {
  Group& group = *member->group;
  if (!IsComparable(member)) return;
  // Point-to-point operations are not compared, but their times bind the clock like any other.
  Clock& clock = *member->clock;
  clock.bounds.Learn(CalledAt(*member, operation), operation.start_ns, operation.stop_ns,
                     operation.delivered_ns);
  clock.deliveries.Learn(operation.stop_ns, operation.delivered_ns);
  member->former_call_ns = operation.call_ns;
  member->former_stop_ns = operation.stop_ns;
  if (TraitsOf(operation.function()).is_point_to_point) return;
  if (group.has_rank_twice) return Count(Uncompared::kRankTwice, 1);
  if (!group.is_timed) return Count(Uncompared::kPartnerMissing, 1);
  // By the bounds of now: later ones are closer, but of another time.
  const std::optional<TimeRange> start =
      clock.bounds.RangeOf(operation.start_ns, operation.delivered_ns);
  const std::optional<TimeRange> stop =
      clock.bounds.RangeOf(operation.stop_ns, operation.delivered_ns);

  // One rank is that far ahead, or its partners' completions were lost: the memory stays bounded.
  if (group.waiting.size() >= kMaxWaitingOperations) GiveUp(group, Uncompared::kPartnerMissing);
  const auto found = group.waiting.try_emplace(operation.function_and_sequence).first;
  Waiting& waiting = found->second;
  const bool is_again =
      std::ranges::any_of(waiting.arrivals, [&](const Arrival& a) { return a.member == member; });
  if (is_again) {  // the number does not name the operation
    Count(Uncompared::kMismatch, waiting.arrivals.size());
    waiting.arrivals.clear();
  }
  if (waiting.arrivals.empty()) {
    waiting.since_ns = now_ns;
    waiting.arrivals.reserve(group.members.size());
  }
  waiting.arrivals.push_back({.member = member,
                              .operation = operation,
                              .start = start.value_or(kUnbound),
                              .stop = stop.value_or(kUnbound),
                              .clock = clock.deliveries.At(operation.delivered_ns)});
  if (waiting.arrivals.size() < group.members.size()) return;
  Compare(group, waiting.arrivals);
  group.waiting.erase(found);
}

const ClockPair& ArrivalMatcher::Group::PairOf(const Arrival& one, const Arrival& other) const {
  return pairs[one.member->number * members.size() + other.member->number];
}

// No rank has left before every rank had entered: each pair of arrivals binds the distance of two
// clocks from both sides.
void ArrivalMatcher::Group::LearnFrom(const std::vector<Arrival>& arrivals) const {
  for (size_t i = 0; i < arrivals.size(); ++i) {
    const CompletedOperation& one = arrivals[i].operation;
    for (size_t j = i + 1; j < arrivals.size(); ++j) {
      const CompletedOperation& other = arrivals[j].operation;
      PairOf(arrivals[i], arrivals[j])
          .Learn(one.start_ns, one.stop_ns, other.start_ns, other.stop_ns, AsOf(one));
    }
  }
}

// `transfer_ns`: how long the shortest kernel of an operation took that waits for all; nothing of
// another one, of which ranks need not leave together.
ArrivalMatcher::Distance ArrivalMatcher::Group::DistanceOf(
    const Arrival& one, const Arrival& other, std::optional<int64_t> transfer_ns) const {
  // By the GPUs' own clocks, of which only the distance is known within bounds.
  const int64_t shown_ns = ClockPair::Difference(one.operation.start_ns, other.operation.start_ns);
  const TimeRange clocks = PairOf(one, other).At(AsOf(one.operation));
  Distance distance{.proven = Common({one.start.least_ns - other.start.most_ns,
                                      one.start.most_ns - other.start.least_ns},
                                     {shown_ns + clocks.least_ns - GpuClockBounds::kTickNs,
                                      shown_ns + clocks.most_ns + GpuClockBounds::kTickNs}),
                    .estimated = {}};
  if (!transfer_ns || !one.clock || !other.clock) return distance;
  // Two witnesses that share no source of error: how long completions took to be delivered, and
  // the durations. Ranks leave together, so who entered later has the shorter kernel.
  const TimeRange by_deliveries =
      Around(shown_ns + (one.clock->distance_ns - other.clock->distance_ns),
             one.clock->uncertainty_ns + other.clock->uncertainty_ns + kUnequalDeliveriesNs +
                 GpuClockBounds::kTickNs);
  const TimeRange by_durations =
      Around(other.DurationNs() - one.DurationNs(),
             kUnequalStopsNs + *transfer_ns / kUnequalStopsDivisor + GpuClockBounds::kTickNs);
  // Witnesses that contradict each other, or the proof, say nothing.
  const TimeRange common = Common(Common(by_deliveries, by_durations), distance.proven);
  if (common.least_ns > common.most_ns) return distance;
  distance.estimated = common;
  distance.is_estimated_later = std::min(by_deliveries.least_ns, by_durations.least_ns) > 0;
  return distance;
}

// A rank is the last one if it is later than each of the others, not only than the first: between
// two that are late together nothing is decided.
void ArrivalMatcher::Compare(Group& group, const std::vector<Arrival>& arrivals) {
  const auto entered_last =
      std::ranges::max_element(arrivals, {}, [](const Arrival& a) { return a.start.least_ns; });
  const auto left_first =
      std::ranges::min_element(arrivals, {}, [](const Arrival& a) { return a.stop.most_ns; });
  PairClocks(group);
  std::optional<int64_t> transfer_ns;
  if (WaitsForAll(arrivals.front().operation.function())) {
    // Impossible within one operation: the ranks have numbered their calls differently.
    if (entered_last->start.least_ns > left_first->stop.most_ns)
      return Count(Uncompared::kMismatch, arrivals.size());
    group.LearnFrom(arrivals);
    transfer_ns = std::ranges::min(arrivals, {}, &Arrival::DurationNs).DurationNs();
  }
  const size_t first = PlaceOfFirst(group, arrivals, transfer_ns);
  distances_.clear();
  for (const Arrival& arrival : arrivals) {
    const bool is_first = &arrival == &arrivals[first];
    distances_.push_back(is_first ? Distance{}
                                  : group.DistanceOf(arrival, arrivals[first], transfer_ns));
  }
  const auto last = static_cast<size_t>(
      std::ranges::max_element(distances_, {}, &Distance::Middle) - distances_.begin());
  for (size_t i = 0; i < arrivals.size(); ++i) {
    const Distance& distance = distances_[i == first ? last : i];
    arrivals[i].member->uncertainty = {
        .proven_ns = HalfWidth(distance.proven),
        .estimated_ns = distance.estimated ? HalfWidth(*distance.estimated) : std::nullopt};
  }
  if (last == first || !distances_[last].IsLater())
    return Count(Uncompared::kUncertainClocks, arrivals.size());
  bool is_last = true, is_proven = distances_[last].IsProvenLater();
  for (size_t i = 0; i < arrivals.size() && is_last; ++i) {
    if (i == last || i == first) continue;
    const Distance distance = group.DistanceOf(arrivals[last], arrivals[i], transfer_ns);
    is_last = distance.IsLater();
    is_proven = is_proven && distance.IsProvenLater();
  }
  for (size_t i = 0; i < arrivals.size(); ++i) {
    ArrivalCounts& counts = arrivals[i].member->counts;
    ++counts.compared;
    if (!is_proven) ++counts.estimated;
    if (!distances_[i].IsLater()) continue;
    const auto lateness_ns = static_cast<uint64_t>(std::max<int64_t>(distances_[i].Middle(), 0));
    // The members of one launch start together: each has its part of the lateness once.
    counts.lateness_ns += lateness_ns / arrivals[i].operation.members;
  }
  if (is_last) ++arrivals[last].member->counts.last;
}

// The one whose distance to any other is the least.
size_t ArrivalMatcher::PlaceOfFirst(const Group& group, const std::vector<Arrival>& arrivals,
                                    std::optional<int64_t> transfer_ns) {
  size_t first = 0;
  int64_t least_ns = 0;
  for (size_t i = 1; i < arrivals.size(); ++i) {
    const int64_t distance_ns =
        group.DistanceOf(arrivals[i], arrivals.front(), transfer_ns).Middle();
    if (distance_ns >= least_ns) continue;
    least_ns = distance_ns;
    first = i;
  }
  return first;
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

}  // namespace nccl_exporter::collector
