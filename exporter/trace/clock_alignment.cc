// SPDX-License-Identifier: Apache-2.0
#include "exporter/trace/clock_alignment.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "proto/waits_for_all.h"

namespace nccl_exporter::exporter {
namespace {

using collector::kMostTraceNs;
using collector::NodeTrace;
using collector::TracedCommunicator;
using collector::TracedOperation;

// Each pass carries a bound over all constraints in their order, forwards in time. Bounds are
// sound after any number of passes; more make them closer.
constexpr int kMostPasses = 64;

// The delivery of an operation takes less than this, against the median of its clock. Others have
// the time stamps of something else: they bound no clock.
constexpr int64_t kPlausibleNs = 60'000'000'000;

}  // namespace

bool IsPlausibleDuration(const TracedOperation& operation) {
  const int64_t duration_ns = operation.stop_ns - operation.start_ns;
  return duration_ns < kPlausibleNs || duration_ns <= operation.delivered_ns - operation.call_ns;
}

ClockAlignment::ClockAlignment(const TracedNodes& nodes) : nodes_(nodes) {
  NumberClocks();
  GatherOrders();
  GatherMeetings();
  Solve();
}

// A GPU that is not known has a clock for each communicator.
void ClockAlignment::NumberClocks() {
  for (size_t n = 0; n < nodes_.size(); ++n)
    clocks_.push_back({.node = n, .least_ns = nodes_[n].end_ns, .most_ns = nodes_[n].end_ns});
  std::map<std::tuple<size_t, uint64_t, std::string>, size_t> of_gpu;
  std::map<size_t, std::vector<int64_t>> deliveries_ns;
  VisitCommunicators(nodes_, [&](const TracePlace& place, const TracedCommunicator& communicator) {
    size_t& clock = kernel_clocks_[place] = CpuClockOf(place.node);
    if (!communicator.ReadsGpuClock()) return;
    clock = clocks_.size();
    if (!communicator.gpu_uuid.empty()) {
      const uint64_t uid = place.ProcessIn(nodes_).uid;
      clock = of_gpu.try_emplace({place.node, uid, communicator.gpu_uuid}, clock).first->second;
    }
    if (clock == clocks_.size()) clocks_.push_back({.node = place.node});
    for (const TracedOperation& operation : communicator.operations)
      deliveries_ns[clock].push_back(operation.delivered_ns - operation.stop_ns);
  });
  for (auto& [clock, of_clock] : deliveries_ns) {
    const auto middle = of_clock.begin() + static_cast<ptrdiff_t>(of_clock.size() / 2);
    std::ranges::nth_element(of_clock, middle);
    clocks_[clock].usual_delivery_ns = *middle;
  }
}

bool ClockAlignment::IsPlausible(const TracedOperation& operation, size_t clock) const {
  const int64_t delivery_ns = operation.delivered_ns - operation.stop_ns;
  const NodeTrace& node = nodes_[clocks_[clock].node];
  return operation.start_ns <= operation.stop_ns && operation.call_ns <= operation.delivered_ns &&
         IsPlausibleDuration(operation) &&
         std::abs(delivery_ns - clocks_[clock].usual_delivery_ns) < kPlausibleNs &&
         operation.delivered_ns < node.end_ns + kPlausibleNs;
}

void ClockAlignment::Clock::Include(int64_t from_ns, int64_t to_ns) {
  least_ns = std::min(least_ns, from_ns);
  most_ns = std::max(most_ns, to_ns);
}

// Keeps only the closest order of both kinds for each GPU and window: all others follow from it,
// but for the drift within the window.
void ClockAlignment::GatherOrders() {
  struct Closest {
    int64_t slack_ns = INT64_MAX;
    Meeting order;
  };
  std::map<std::tuple<bool, size_t, int64_t>, Closest> closest;  // call or delivery, GPU, window
  const auto keep_closest = [&](bool is_delivery, size_t gpu, int64_t slack_ns,
                                const Participation& entry, const Participation& exit) {
    const int64_t at_ns = is_delivery ? entry.start_ns : exit.stop_ns;
    Closest& kept = closest[{is_delivery, gpu, at_ns / kLeastWindowNs}];
    if (slack_ns < kept.slack_ns) kept = {slack_ns, {.group = gpu, .members = {entry, exit}}};
  };
  VisitCommunicators(nodes_, [&](const TracePlace& place, const TracedCommunicator& communicator) {
    const size_t clock = KernelClockOf(place), cpu = CpuClockOf(place.node);
    const int64_t begin_ns = nodes_[place.node].begin_ns;
    for (const TracedOperation& operation : communicator.operations) {
      if (!IsPlausible(operation, clock)) continue;
      clocks_[clock].Include(operation.start_ns, operation.stop_ns);
      clocks_[cpu].Include(std::max(operation.call_ns, begin_ns), operation.delivered_ns);
      if (IsCpu(clock)) continue;
      if (communicator.CallIsBound() && operation.call_ns >= begin_ns)
        keep_closest(false, clock, operation.start_ns - operation.call_ns,
                     {.clock = cpu, .start_ns = operation.call_ns},
                     {.clock = clock, .stop_ns = operation.start_ns + kGpuTickNs});
      keep_closest(true, clock, operation.delivered_ns - operation.stop_ns,
                   {.clock = clock, .start_ns = operation.stop_ns},
                   {.clock = cpu, .stop_ns = operation.delivered_ns});
    }
  });
  for (auto& [key, kept] : closest) orders_.push_back(std::move(kept.order));
}

// A rank that is there twice makes its collectives ambiguous: they are left out.
void ClockAlignment::GatherMeetings() {
  std::map<CommunicatorName, size_t> groups;
  std::map<std::tuple<size_t, Function, uint64_t>, std::vector<Participation>> found;
  VisitCommunicators(nodes_, [&](const TracePlace& place, const TracedCommunicator& communicator) {
    if (!communicator.has_identity || communicator.ranks < 2) return;
    const CommunicatorName name = NameIn(nodes_, place);
    const size_t group = groups.try_emplace(name, clocks_.size() + groups.size()).first->second;
    const size_t clock = KernelClockOf(place);
    for (size_t i = 0; i < communicator.operations.size(); ++i) {
      const TracedOperation& operation = communicator.operations[i];
      if (!WaitsForAll(operation.function) || !IsPlausible(operation, clock)) continue;
      found[{group, operation.function, operation.sequence}].push_back(
          {.clock = clock,
           .start_ns = operation.start_ns,
           .stop_ns = operation.stop_ns + kGpuTickNs,
           .place = place,
           .operation = i,
           .rank = communicator.rank});
    }
  });
  group_is_left_out_.resize(clocks_.size() + groups.size());
  for (auto& [key, members] : found) {
    std::ranges::sort(members, {}, &Participation::rank);
    const bool is_twice =
        std::ranges::adjacent_find(members, {}, &Participation::rank) != members.end();
    if (members.size() > 1 && !is_twice)
      meetings_.push_back({std::get<0>(key), std::move(members)});
  }
  // Forwards in time, so that one pass carries a bound along.
  std::ranges::stable_sort(meetings_, {}, [&](const Meeting& meeting) {
    const Participation& first = meeting.members.front();
    return first.start_ns - clocks_[first.clock].least_ns;
  });
}

ClockBounds ClockAlignment::Unbounded() const {
  ClockBounds bounds;
  const int64_t most_windows = std::clamp<int64_t>(
      kMostWindowsOfAll / std::max<int64_t>(static_cast<int64_t>(clocks_.size()), 1), 1,
      kMostWindows);
  for (const Clock& clock : clocks_) {
    ClockWindows& windows = bounds.emplace_back();
    const int64_t span_ns = std::max<int64_t>(clock.most_ns - clock.least_ns, 0);
    windows.origin_ns = clock.least_ns <= clock.most_ns ? clock.least_ns : 0;
    windows.length_ns = std::max(kLeastWindowNs, span_ns / most_windows + 1);
    windows.bounds.resize(static_cast<size_t>(span_ns / windows.length_ns) + 1);
  }
  return bounds;
}

// The moment M is bounded by all members, and then each member by M.
bool ClockAlignment::Apply(const Meeting& meeting, ClockBounds& bounds, bool& changes) {
  int64_t least_ns = -kMostTraceNs, most_ns = kMostTraceNs;
  for (const Participation& member : meeting.members) {
    const ClockWindows& windows = bounds[member.clock];
    const int64_t entered_ns = windows.At(member.start_ns).least_ns;
    const int64_t left_ns = windows.At(member.stop_ns).most_ns;
    if (IsKnown(member.start_ns) && IsKnown(entered_ns))
      least_ns = std::max(least_ns, member.start_ns + entered_ns);
    if (IsKnown(member.stop_ns) && IsKnown(left_ns))
      most_ns = std::min(most_ns, member.stop_ns + left_ns);
  }
  bool is_sound = true;
  for (const Participation& member : meeting.members) {
    ClockWindows& windows = bounds[member.clock];
    if (IsKnown(member.start_ns)) {
      if (most_ns < kMostTraceNs)
        changes |= windows.Narrow({.most_ns = Clamped(most_ns - member.start_ns)}, member.start_ns);
      is_sound = is_sound && windows.IsSoundAt(member.start_ns);
    }
    if (IsKnown(member.stop_ns)) {
      if (least_ns > -kMostTraceNs)
        changes |= windows.Narrow({.least_ns = Clamped(least_ns - member.stop_ns)}, member.stop_ns);
      is_sound = is_sound && windows.IsSoundAt(member.stop_ns);
    }
  }
  return is_sound;
}

// A contradiction that shows when bounds drift into each other is put down to what changed the
// clock last.
std::optional<size_t> ClockAlignment::Tighten(ClockBounds& bounds) const {
  std::vector<std::optional<size_t>> latest(clocks_.size());
  bool changes = true;
  for (int pass = 0; pass < kMostPasses && changes; ++pass) {
    changes = false;
    for (const std::vector<Meeting>* const list : {&orders_, &meetings_}) {
      for (const Meeting& meeting : *list) {
        if (IsLeftOut(meeting)) continue;
        bool changes_here = false;
        if (!Apply(meeting, bounds, changes_here)) return meeting.group;
        if (!changes_here) continue;
        changes = true;
        for (const Participation& member : meeting.members) latest[member.clock] = meeting.group;
      }
    }
    for (size_t clock = 0; clock < clocks_.size(); ++clock) {
      if (!bounds[clock].Drift(changes)) return latest[clock];
    }
  }
  return std::nullopt;
}

// Bounds of the rates make the offsets' closer, which makes the rates' closer.
void ClockAlignment::Refine(ClockBounds& bounds) const {
  constexpr int kRounds = 4;
  for (int round = 0; round < kRounds; ++round) {
    ClockBounds refined = bounds;
    bool is_sound = true;
    for (ClockWindows& windows : refined) {
      const int64_t length_ns = windows.length_ns * static_cast<int64_t>(windows.bounds.size());
      if (length_ns <= kSteadyNs) is_sound = windows.BoundRate() && is_sound;
    }
    if (!is_sound || Tighten(refined)) return;
    bounds = std::move(refined);
  }
}

// Each node that the first one does not bind becomes the axis of its own island, by CLOCK_REALTIME.
void ClockAlignment::Solve() {
  islands_.assign(clocks_.size(), 0);
  bounds_ = Unbounded();
  for (size_t n = 0; n < nodes_.size(); ++n) {
    if (n > 0 && IsBound(n, nodes_[n].end_ns)) continue;
    const ClockBounds before = bounds_;
    const auto fix_and_tighten = [&] {
      bounds_[n].Fix(Clamped(nodes_[n].realtime_offset_ns - nodes_[0].realtime_offset_ns));
      return Tighten(bounds_);
    };
    while (const std::optional<size_t> culprit = fix_and_tighten()) {
      group_is_left_out_[*culprit] = true;
      bounds_ = before;
    }
    Refine(bounds_);
    for (size_t clock = 0; clock < clocks_.size(); ++clock) {
      const bool was_known = before[clock].bounds.front().is_known();
      if (!was_known && bounds_[clock].bounds.front().is_known()) islands_[clock] = n;
    }
  }
}

ClockBounds ClockAlignment::Against(size_t axis) const {
  ClockBounds bounds = Unbounded();
  bounds[axis].Fix(0);
  if (!Tighten(bounds)) Refine(bounds);
  return bounds;
}

size_t ClockAlignment::contradictions() const {
  return static_cast<size_t>(std::ranges::count(group_is_left_out_, true));
}

int64_t ClockAlignment::OffsetAt(size_t clock, int64_t time_ns) const {
  const OffsetBounds bounds = At(clock, time_ns);
  if (bounds.is_known()) return bounds.Middle();
  if (IsCpu(clock)) return 0;  // fixed in Solve(), so always known
  const Clock& gpu = clocks_[clock];
  // The fastest delivery, if the GPU contradicts nothing.
  if (IsKnown(bounds.most_ns) && !group_is_left_out_[clock]) return bounds.most_ns;
  return OffsetAt(gpu.node, nodes_[gpu.node].end_ns) + gpu.usual_delivery_ns;
}

}  // namespace nccl_exporter::exporter
