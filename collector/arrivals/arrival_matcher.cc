// SPDX-License-Identifier: Apache-2.0
// Groups of ranks, operations that wait for their partners, and the comparison.
#include "collector/arrivals/arrival_matcher.h"

#include <algorithm>
#include <limits>

#include "proto/waits_for_all.h"

namespace nccl_exporter::collector {

// A number that stands twice belongs to two jobs with one communicator's hash, or to a restart
// whose former process is not gone yet. Nothing shows which completion belongs to which.
void ArrivalMatcher::Judge(Group& group) {
  std::vector<uint64_t> ranks;
  for (const Member* member : group.members) ranks.push_back(member->rank.rank);
  std::ranges::sort(ranks);
  group.has_rank_twice = std::ranges::adjacent_find(ranks) != ranks.end();
  group.is_timed = std::ranges::all_of(
      group.members, [](const Member* member) { return member->rank.has_kernel_times; });
}

// Operations that wait were counted against the earlier members: they cannot become complete any
// more.
ArrivalMatcher::Member* ArrivalMatcher::Add(const LocalRank& rank) {
  Group& group = groups_[rank.communicator];
  GiveUp(group);
  Member& member = members_.emplace_back(Member{.rank = rank, .group = &group});
  group.members.push_back(&member);
  Judge(group);
  return &member;
}

void ArrivalMatcher::Remove(Member* member) {
  Group& group = *member->group;
  GiveUp(group);
  std::erase(group.members, member);
  Judge(group);
  if (group.members.empty()) groups_.erase(member->rank.communicator);
  std::erase_if(members_, [&](const Member& other) { return &other == member; });
}

void ArrivalMatcher::SetHasKernelTimes(Member* member, bool has_kernel_times) {
  if (member->rank.has_kernel_times == has_kernel_times) return;
  member->rank.has_kernel_times = has_kernel_times;
  Judge(*member->group);
}

void ArrivalMatcher::CountLost(const Member* member, uint64_t operations) {
  if (member->IsComparable()) Count(Uncompared::kRingOverrun, operations);
}

void ArrivalMatcher::Take(Member* member, const CompletedOperation& operation, uint64_t now_ns) {
  Group& group = *member->group;
  const Function function = operation.function();
  if (!member->IsComparable() || TraitsOf(function).is_point_to_point) return;
  if (!WaitsForAll(function)) return Count(Uncompared::kNoCommonEnd, 1);
  if (group.has_rank_twice) return Count(Uncompared::kRankTwice, 1);
  if (!group.is_timed) return Count(Uncompared::kPartnerMissing, 1);

  // One rank is that far ahead, or its partners' completions were lost: the memory stays bounded.
  if (group.waiting.size() >= kMaxWaitingOperations) GiveUp(group);
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
  waiting.arrivals.push_back({.member = member, .operation = operation});
  if (waiting.arrivals.size() < group.members.size()) return;
  Compare(waiting.arrivals);
  group.waiting.erase(found);
}

// No rank leaves the operation before every rank has called it. If one seems to, the ranks have
// numbered their calls differently. Calls and deliveries are of the node's clock.
bool ArrivalMatcher::CanBeOne(const std::vector<Arrival>& arrivals) {
  uint64_t last_call_ns = 0, first_delivery_ns = std::numeric_limits<uint64_t>::max();
  for (const Arrival& arrival : arrivals) {
    if (arrival.member->rank.call_is_bound)
      last_call_ns = std::max(last_call_ns, arrival.operation.call_ns);
    first_delivery_ns = std::min(first_delivery_ns, arrival.operation.delivered_ns);
  }
  return last_call_ns <= first_delivery_ns;
}

// The rank with the shortest kernel is the last one if the next kernel is longer by enough: between
// two that are late together nothing is decided.
void ArrivalMatcher::Compare(std::vector<Arrival>& arrivals) {
  if (!CanBeOne(arrivals)) return Count(Uncompared::kMismatch, arrivals.size());
  std::ranges::sort(arrivals, {}, &Arrival::DurationNs);
  const uint64_t shortest_ns = arrivals.front().DurationNs();
  const uint64_t longest_ns = arrivals.back().DurationNs();
  const uint64_t unequal_ns = kUnequalStopsNs + shortest_ns / kUnequalStopsDivisor;
  if (longest_ns - shortest_ns <= unequal_ns) return Count(Uncompared::kTogether, arrivals.size());
  for (const Arrival& arrival : arrivals) {
    ArrivalCounts& counts = arrival.member->counts;
    ++counts.compared;
    const uint64_t lateness_ns = longest_ns - arrival.DurationNs();
    // The members of one launch start together: each has its part of the lateness once.
    if (lateness_ns > unequal_ns) counts.lateness_ns += lateness_ns / arrival.operation.members;
  }
  if (arrivals[1].DurationNs() - shortest_ns > unequal_ns) ++arrivals.front().member->counts.last;
}

void ArrivalMatcher::GiveUp(Group& group) {
  for (const auto& [number, waiting] : group.waiting)
    Count(Uncompared::kPartnerMissing, waiting.arrivals.size());
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
