// SPDX-License-Identifier: Apache-2.0
#include "exporter/trace/time_classes.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

namespace nccl_exporter::exporter {
namespace {

using collector::TracedCommunicator;
using collector::TracedInFlight;
using collector::TracedOperation;

// Longer ones have time stamps of something else; no sum of them overflows.
constexpr int64_t kMostOperationNs = 3'600'000'000'000;

double DurationNs(const TracedOperation& operation) {
  const int64_t duration_ns = operation.stop_ns - operation.start_ns;
  const bool is_its_own = duration_ns < kMostOperationNs && IsPlausibleDuration(operation);
  return static_cast<double>(is_its_own ? std::max<int64_t>(duration_ns, 0) : 0);
}

// A communicator on all nodes.
struct Group {
  CommunicatorTime time;
  std::vector<TracePlace> ranks;
};

const TracedOperation& OperationOf(const TracedNodes& nodes, const Participation& member) {
  return member.place.CommunicatorIn(nodes).operations[member.operation];
}

// Ranks leave a collective at about the same time, so the one that enters last is in it for as much
// shorter as the others wait. No clock is as exact; the bounds hold all the same.
double WaitedNs(double duration_ns, double of_last_ns, const OffsetBounds& bounds) {
  const double waited_ns =
      std::clamp(duration_ns - of_last_ns, static_cast<double>(bounds.least_ns),
                 static_cast<double>(bounds.most_ns));
  return std::clamp(waited_ns, 0.0, duration_ns);
}

// `wait` is nothing where the order of the ranks is not certain.
void AddMeeting(const TracedNodes& nodes, const Meeting& meeting, const CertainWait* wait,
                CommunicatorTime& time) {
  const TracedOperation& first = OperationOf(nodes, meeting.members.front());
  bool is_one_call = true;
  double least_ns = static_cast<double>(kMostOperationNs);
  for (const Participation& member : meeting.members) {
    const TracedOperation& operation = OperationOf(nodes, member);
    is_one_call = is_one_call && operation.bytes == first.bytes;
    least_ns = std::min(least_ns, DurationNs(operation));
  }
  const double last_ns =
      wait == nullptr ? 0 : DurationNs(OperationOf(nodes, meeting.members[wait->last]));
  const uint64_t ranks = meeting.members.front().place.CommunicatorIn(nodes).ranks;
  const TimeClass together =
      meeting.members.size() == ranks ? TimeClass::kTransfer : TimeClass::kOutside;
  for (size_t i = 0; i < meeting.members.size(); ++i) {
    const double duration_ns = DurationNs(OperationOf(nodes, meeting.members[i]));
    time.Of(TimeClass::kNotShared) -= duration_ns;
    if (!is_one_call) {
      time.Of(TimeClass::kMismatch) += duration_ns;
      continue;
    }
    const double waited_ns = wait == nullptr ? duration_ns - least_ns
                                             : WaitedNs(duration_ns, last_ns, wait->waits_ns[i]);
    time.Of(together) += duration_ns - waited_ns;
    if (wait == nullptr) {
      time.Of(TimeClass::kOrder) += waited_ns;
      continue;
    }
    const auto bounded = [&](int64_t ns) {
      return std::clamp(static_cast<double>(ns), 0.0, waited_ns);
    };
    const double launch_ns = bounded(wait->launch_ns[i].least_ns);
    const double arrival_ns = waited_ns - bounded(wait->launch_ns[i].most_ns);
    time.Of(TimeClass::kLaunchSkew) += launch_ns;
    time.Of(TimeClass::kArrivalSkew) += arrival_ns;
    time.Of(TimeClass::kCall) += waited_ns - launch_ns - arrival_ns;
  }
}

// One rank of a communicator, and the operation that it has been in for long.
struct OpenRank {
  const TracedInFlight* oldest = nullptr;  // nothing if it is in none for kLeastOpenNs
  double age_ns = 0;
  const std::vector<uint64_t>* started = nullptr;  // by function; nothing if not comparable
  uint64_t in_flight = 0;                          // of the function of the oldest

  uint64_t StartedLike(const OpenRank& other) const {
    return (*started)[static_cast<size_t>(other.oldest->function)];
  }
  // By counts: the trace may lack the operations that others have completed.
  bool HasCalledOldestOf(const OpenRank& other) const {
    return StartedLike(other) + other.in_flight > other.StartedLike(other);
  }
};

// A process that has ended is late in nothing.
OpenRank OpenRankAt(const TracedNodes& nodes, const TracePlace& place) {
  OpenRank rank;
  const TracedCommunicator& communicator = place.CommunicatorIn(nodes);
  if (place.ProcessIn(nodes).is_alive && communicator.in_flight_is_known &&
      communicator.started.value_or(std::vector<uint64_t>()).size() == kFunctionCount)
    rank.started = &*communicator.started;
  if (communicator.in_flight.empty()) return rank;
  const int64_t age_ns = nodes[place.node].end_ns - communicator.in_flight.front().call_ns;
  if (age_ns < kLeastOpenNs) return rank;
  rank.oldest = &communicator.in_flight.front();
  rank.in_flight = static_cast<uint64_t>(
      std::ranges::count(communicator.in_flight, rank.oldest->function, &TracedInFlight::function));
  rank.age_ns = static_cast<double>(age_ns);
  return rank;
}

// A rank that waits is compared with one that has started fewest of its function, and of these with
// one that is in something else.
TimeClass ClassOf(const OpenRank& rank, const std::vector<OpenRank>& ranks) {
  const auto is_point_to_point = [](const OpenRank& of) {
    return TraitsOf(of.oldest->function).is_point_to_point;
  };
  if (rank.started == nullptr || is_point_to_point(rank)) return TimeClass::kOpen;
  const auto order = [&](const OpenRank& of) {
    return std::pair(of.StartedLike(rank), of.oldest == nullptr);
  };
  const OpenRank* last = &rank;
  for (const OpenRank& other : ranks) {
    if (other.started != nullptr && order(other) < order(*last)) last = &other;
  }
  if (last->HasCalledOldestOf(rank)) return TimeClass::kOpen;
  if (last->oldest == nullptr) return TimeClass::kLaunchSkew;
  return is_point_to_point(*last) || rank.HasCalledOldestOf(*last) ? TimeClass::kOpen
                                                                   : TimeClass::kMismatch;
}

void AddOpen(const TracedNodes& nodes, Group& group) {
  std::vector<OpenRank> ranks;
  for (const TracePlace& place : group.ranks) ranks.push_back(OpenRankAt(nodes, place));
  for (const OpenRank& rank : ranks) {
    if (rank.oldest != nullptr) group.time.Of(ClassOf(rank, ranks)) += rank.age_ns;
  }
}

}  // namespace

double CommunicatorTime::Total() const { return std::accumulate(ns.begin(), ns.end(), 0.0); }

double CommunicatorTime::Inconclusive() const {
  return std::accumulate(ns.begin() + static_cast<size_t>(TimeClass::kNotShared), ns.end(), 0.0);
}

std::string_view CommunicatorTime::Verdict() const {
  if (Of(TimeClass::kMismatch) > 0) return NameOf(TimeClass::kMismatch);
  const double known_ns = Total() - Inconclusive();
  if (Inconclusive() > known_ns) return "inconclusive";
  for (const TimeClass one :
       {TimeClass::kTransfer, TimeClass::kArrivalSkew, TimeClass::kLaunchSkew}) {
    if (Of(one) * 2 > known_ns) return NameOf(one);
  }
  return "mixed";
}

std::vector<CommunicatorTime> TimeClasses(const ClockAlignment& alignment,
                                          const std::vector<CertainWait>& waits) {
  const TracedNodes& nodes = alignment.nodes();
  std::map<CommunicatorName, Group> groups;
  std::map<TracePlace, Group*> group_of;
  VisitCommunicators(nodes, [&](const TracePlace& place, const TracedCommunicator& communicator) {
    Group& group = groups[NameIn(nodes, place)];
    group_of[place] = &group;
    group.ranks.push_back(place);
    group.time.place = place;
    group.time.operations += communicator.operations.size();
    // Nobody waits in a communicator of one rank.
    double& time_ns =
        group.time.Of(communicator.ranks == 1 ? TimeClass::kTransfer : TimeClass::kNotShared);
    for (const TracedOperation& operation : communicator.operations)
      time_ns += DurationNs(operation);
  });
  auto wait = waits.begin();
  for (size_t i = 0; i < alignment.meetings().size(); ++i) {
    const Meeting& meeting = alignment.meetings()[i];
    const bool is_certain = wait != waits.end() && wait->meeting == i;
    AddMeeting(nodes, meeting, is_certain ? &*wait : nullptr,
               group_of.at(meeting.members.front().place)->time);
    if (is_certain) ++wait;
  }
  std::vector<CommunicatorTime> times;
  for (auto& [name, group] : groups) {
    AddOpen(nodes, group);
    group.time.traced_ranks = group.ranks.size();
    // Sums of durations that were added and taken away again.
    double& not_shared_ns = group.time.Of(TimeClass::kNotShared);
    if (not_shared_ns < 1) not_shared_ns = 0;
    if (group.time.Total() > 0) times.push_back(group.time);
  }
  std::ranges::stable_sort(times, std::greater<>(), &CommunicatorTime::Total);
  return times;
}

}  // namespace nccl_exporter::exporter
