// SPDX-License-Identifier: Apache-2.0
#include "exporter/trace/clock_alignment.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <tuple>
#include <utility>

#include "exporter/trace/collective_key.h"
#include "proto/waits_for_all.h"

namespace nccl_exporter::exporter {
namespace {

using collector::kMostTraceNs;
using collector::NodeTrace;
using collector::TracedCommunicator;
using collector::TracedOperation;
using collector::TracedProcess;

// Each pass carries a bound over all constraints in their order, forwards in time. Bounds are
// sound after any number of passes; more make them closer.
constexpr int kMostPasses = 64;

// An operation takes less than this, and so does its delivery, against the median of its clock.
// Others have the time stamps of something else, or hang: they bound no clock.
constexpr int64_t kPlausibleNs = 60'000'000'000;

int64_t Clamped(int64_t ns) { return std::clamp(ns, -kMostTraceNs, kMostTraceNs); }

bool IsKnown(int64_t bound_ns) { return std::abs(bound_ns) < kMostTraceNs; }

}  // namespace

ClockAlignment::ClockAlignment(const std::vector<NodeTrace>& nodes) : nodes_(nodes) {
  NumberClocks();
  GatherOrders();
  GatherMeetings();
  Solve();
}

// A GPU that is not known has a clock for each communicator.
void ClockAlignment::NumberClocks() {
  for (size_t n = 0; n < nodes_.size(); ++n) {
    clocks_.push_back(
        {.node = n, .is_cpu = true, .least_ns = nodes_[n].end_ns, .most_ns = nodes_[n].end_ns});
  }
  for (size_t n = 0; n < nodes_.size(); ++n) {
    std::map<std::pair<uint64_t, std::string>, size_t> of_gpu;
    std::map<size_t, std::vector<int64_t>> deliveries_ns;
    auto& of_node = kernel_clocks_.emplace_back();
    for (const TracedProcess& process : nodes_[n].processes) {
      auto& of_process = of_node.emplace_back();
      for (const TracedCommunicator& communicator : process.communicators) {
        size_t clock = n;
        if (communicator.ReadsGpuClock()) {
          clock = clocks_.size();
          if (!communicator.gpu_uuid.empty())
            clock = of_gpu.try_emplace({process.uid, communicator.gpu_uuid}, clock).first->second;
          if (clock == clocks_.size()) clocks_.push_back({.node = n});
        }
        of_process.push_back(clock);
        if (clocks_[clock].is_cpu) continue;
        for (const TracedOperation& operation : communicator.operations)
          deliveries_ns[clock].push_back(operation.delivered_ns - operation.stop_ns);
      }
    }
    for (auto& [clock, of_clock] : deliveries_ns) {
      const auto middle = of_clock.begin() + static_cast<ptrdiff_t>(of_clock.size() / 2);
      std::ranges::nth_element(of_clock, middle);
      clocks_[clock].usual_delivery_ns = *middle;
    }
  }
}

bool ClockAlignment::IsPlausible(const TracedOperation& operation, size_t clock) const {
  const int64_t delivery_ns = operation.delivered_ns - operation.stop_ns;
  const NodeTrace& node = nodes_[clocks_[clock].node];
  return operation.start_ns <= operation.stop_ns && operation.call_ns <= operation.delivered_ns &&
         operation.stop_ns - operation.start_ns < kPlausibleNs &&
         std::abs(delivery_ns - clocks_[clock].usual_delivery_ns) < kPlausibleNs &&
         operation.delivered_ns < node.end_ns + kPlausibleNs;
}

// Of each GPU and window only the closest order of both kinds: all others follow from it, but for
// the drift within the window.
void ClockAlignment::GatherOrders() {
  std::map<size_t, std::vector<const TracedCommunicator*>> of_clock;
  for (size_t n = 0; n < nodes_.size(); ++n) {
    for (size_t p = 0; p < nodes_[n].processes.size(); ++p) {
      const auto& communicators = nodes_[n].processes[p].communicators;
      for (size_t c = 0; c < communicators.size(); ++c)
        of_clock[kernel_clocks_[n][p][c]].push_back(&communicators[c]);
    }
  }
  for (const auto& [clock, communicators] : of_clock) {
    for (const TracedCommunicator* const communicator : communicators) {
      for (const TracedOperation& operation : communicator->operations) {
        if (!IsPlausible(operation, clock)) continue;
        clocks_[clock].least_ns = std::min(clocks_[clock].least_ns, operation.start_ns);
        clocks_[clock].most_ns = std::max(clocks_[clock].most_ns, operation.stop_ns);
        Clock& cpu = clocks_[clocks_[clock].node];
        cpu.least_ns = std::min(cpu.least_ns,
                                std::max(operation.call_ns, nodes_[clocks_[clock].node].begin_ns));
        cpu.most_ns = std::max(cpu.most_ns, operation.delivered_ns);
        clocks_[clock].fastest_delivery_ns = std::min(clocks_[clock].fastest_delivery_ns,
                                                      operation.delivered_ns - operation.stop_ns);
      }
    }
    const size_t node = clocks_[clock].node;
    if (!clocks_[clock].is_cpu) AddOrders(clock, node, nodes_[node], communicators);
  }
}

void ClockAlignment::AddOrders(size_t gpu, size_t cpu, const NodeTrace& node,
                               const std::vector<const TracedCommunicator*>& communicators) {
  std::map<int64_t, Order> calls, deliveries;  // by window
  const auto keep_closest = [](std::map<int64_t, Order>& orders, int64_t at_ns,
                               const Order& order) {
    const auto [found, is_new] = orders.try_emplace(at_ns / kLeastWindowNs, order);
    const auto slack = [](const Order& one) { return one.later_ns - one.earlier_ns; };
    if (!is_new && slack(order) < slack(found->second)) found->second = order;
  };
  for (const TracedCommunicator* const communicator : communicators) {
    for (const TracedOperation& operation : communicator->operations) {
      if (!IsPlausible(operation, gpu)) continue;
      if (communicator->CallIsBound() && operation.call_ns >= node.begin_ns) {
        keep_closest(calls, operation.start_ns,
                     {.earlier_clock = cpu,
                      .later_clock = gpu,
                      .earlier_ns = operation.call_ns,
                      .later_ns = operation.start_ns + kGpuTickNs});
      }
      keep_closest(deliveries, operation.stop_ns,
                   {.earlier_clock = gpu,
                    .later_clock = cpu,
                    .earlier_ns = operation.stop_ns,
                    .later_ns = operation.delivered_ns});
    }
  }
  for (const auto& [window, order] : calls) orders_.push_back(order);
  for (const auto& [window, order] : deliveries) orders_.push_back(order);
}

// A rank that is there twice makes its collectives ambiguous: they are left out.
void ClockAlignment::GatherMeetings() {
  std::map<CollectiveKey, Meeting> found;
  std::map<CommunicatorName, size_t> groups;
  for (uint32_t n = 0; n < nodes_.size(); ++n) {
    for (uint32_t p = 0; p < nodes_[n].processes.size(); ++p) {
      const TracedProcess& process = nodes_[n].processes[p];
      for (uint32_t c = 0; c < process.communicators.size(); ++c) {
        const TracedCommunicator& communicator = process.communicators[c];
        if (!communicator.has_identity || communicator.ranks < 2) continue;
        const CommunicatorName name = NameOf(process, communicator);
        const size_t group = groups.try_emplace(name, groups.size()).first->second;
        const size_t clock = kernel_clocks_[n][p][c];
        for (size_t i = 0; i < communicator.operations.size(); ++i) {
          const TracedOperation& operation = communicator.operations[i];
          if (!WaitsForAll(operation.function) || !IsPlausible(operation, clock)) continue;
          Meeting& meeting = found[{name, operation.function, operation.sequence}];
          meeting.group = group;
          meeting.members.push_back({.clock = clock,
                                     .start_ns = operation.start_ns,
                                     .stop_ns = operation.stop_ns,
                                     .node = n,
                                     .process = p,
                                     .communicator = c,
                                     .operation = i,
                                     .rank = communicator.rank});
        }
      }
    }
  }
  group_is_left_out_.resize(groups.size());
  for (auto& [key, meeting] : found) {
    std::ranges::sort(meeting.members, {}, &Participation::rank);
    const bool is_twice = std::ranges::adjacent_find(meeting.members, {}, &Participation::rank) !=
                          meeting.members.end();
    if (meeting.members.size() > 1 && !is_twice) meetings_.push_back(std::move(meeting));
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
    ClockBounds::Windows& windows = bounds.clocks_.emplace_back();
    const int64_t span_ns = std::max<int64_t>(clock.most_ns - clock.least_ns, 0);
    windows.origin_ns = clock.least_ns <= clock.most_ns ? clock.least_ns : 0;
    windows.length_ns = std::max(kLeastWindowNs, span_ns / most_windows + 1);
    windows.bounds.resize(static_cast<size_t>(span_ns / windows.length_ns) + 1);
  }
  return bounds;
}

void ClockAlignment::Fix(ClockBounds& bounds, size_t clock, int64_t offset_ns) {
  ClockBounds::Windows& windows = bounds.clocks_[clock];
  windows.least_rate = windows.most_rate = 0;
  for (OffsetBounds& window : windows.bounds)
    window = {.least_ns = offset_ns, .most_ns = offset_ns};
}

bool ClockAlignment::Apply(const Order& order, ClockBounds& bounds, bool& changes) {
  ClockBounds::Windows& earlier = bounds.clocks_[order.earlier_clock];
  ClockBounds::Windows& later = bounds.clocks_[order.later_clock];
  const int64_t slack_ns = order.later_ns - order.earlier_ns;
  const int64_t most_ns = later.At(order.later_ns).most_ns;
  const int64_t least_ns = earlier.At(order.earlier_ns).least_ns;
  if (IsKnown(most_ns) && earlier.LowerMost(Clamped(most_ns + slack_ns), order.earlier_ns))
    changes = true;
  if (IsKnown(least_ns) && later.RaiseLeast(Clamped(least_ns - slack_ns), order.later_ns))
    changes = true;
  return earlier.IsSoundAt(order.earlier_ns) && later.IsSoundAt(order.later_ns);
}

// The moment M of the collective is bounded by all members, and then each member by M.
bool ClockAlignment::Apply(const Meeting& meeting, ClockBounds& bounds, bool& changes) {
  int64_t least_ns = -kMostTraceNs, most_ns = kMostTraceNs;
  for (const Participation& member : meeting.members) {
    const ClockBounds::Windows& windows = bounds.clocks_[member.clock];
    const int64_t entered_ns = windows.At(member.start_ns).least_ns;
    const int64_t left_ns = windows.At(member.stop_ns).most_ns;
    if (IsKnown(entered_ns)) least_ns = std::max(least_ns, member.start_ns + entered_ns);
    if (IsKnown(left_ns)) most_ns = std::min(most_ns, member.stop_ns + kGpuTickNs + left_ns);
  }
  bool is_sound = true;
  for (const Participation& member : meeting.members) {
    ClockBounds::Windows& windows = bounds.clocks_[member.clock];
    if (most_ns < kMostTraceNs &&
        windows.LowerMost(Clamped(most_ns - member.start_ns), member.start_ns))
      changes = true;
    if (least_ns > -kMostTraceNs &&
        windows.RaiseLeast(Clamped(least_ns - member.stop_ns - kGpuTickNs), member.stop_ns))
      changes = true;
    is_sound = is_sound && windows.IsSoundAt(member.start_ns) && windows.IsSoundAt(member.stop_ns);
  }
  return is_sound;
}

// A contradiction that shows when bounds drift into each other is put down to what changed the
// clock last.
ClockAlignment::Culprit ClockAlignment::Tighten(ClockBounds& bounds) const {
  std::vector<Culprit> latest(clocks_.size());
  bool changes = true;
  for (int pass = 0; pass < kMostPasses && changes; ++pass) {
    changes = false;
    for (const Order& order : orders_) {
      const Culprit cause{Culprit::Kind::kClock, std::max(order.earlier_clock, order.later_clock)};
      if (clocks_[cause.number].is_left_out) continue;
      bool changes_here = false;
      if (!Apply(order, bounds, changes_here)) return cause;
      if (changes_here) latest[order.earlier_clock] = latest[order.later_clock] = cause;
      changes = changes || changes_here;
    }
    for (const Meeting& meeting : meetings_) {
      if (group_is_left_out_[meeting.group]) continue;
      const Culprit cause{Culprit::Kind::kGroup, meeting.group};
      bool changes_here = false;
      if (!Apply(meeting, bounds, changes_here)) return cause;
      for (const Participation& member : meeting.members) {
        if (changes_here) latest[member.clock] = cause;
      }
      changes = changes || changes_here;
    }
    for (size_t clock = 0; clock < clocks_.size(); ++clock) {
      if (!bounds.clocks_[clock].Drift(changes)) return latest[clock];
    }
  }
  return {};
}

// Bounds of the rates make the offsets' closer, which makes the rates' closer.
void ClockAlignment::Refine(ClockBounds& bounds) const {
  constexpr int kRounds = 4;
  for (int round = 0; round < kRounds; ++round) {
    ClockBounds refined = bounds;
    bool is_sound = true;
    for (ClockBounds::Windows& windows : refined.clocks_) {
      const int64_t length_ns = windows.length_ns * static_cast<int64_t>(windows.bounds.size());
      if (length_ns <= kSteadyNs) windows.BoundRate();
      is_sound = is_sound && windows.least_rate <= windows.most_rate;
    }
    if (!is_sound || Tighten(refined).kind != Culprit::Kind::kNone) return;
    bounds = std::move(refined);
  }
}

void ClockAlignment::LeaveOut(const Culprit& culprit) {
  ++contradictions_;
  if (culprit.kind == Culprit::Kind::kGroup) group_is_left_out_[culprit.number] = true;
  if (culprit.kind == Culprit::Kind::kClock) clocks_[culprit.number].is_left_out = true;
}

// Each node that the first one does not bind becomes the axis of its own island, by CLOCK_REALTIME.
void ClockAlignment::Solve() {
  islands_.assign(clocks_.size(), 0);
  bounds_ = Unbounded();
  for (size_t n = 0; n < nodes_.size(); ++n) {
    if (n > 0 && IsBound(n, nodes_[n].end_ns)) continue;
    const int64_t offset_ns = nodes_[n].realtime_offset_ns - nodes_[0].realtime_offset_ns;
    const ClockBounds before = bounds_;
    Fix(bounds_, n, Clamped(offset_ns));
    for (Culprit culprit = Tighten(bounds_); culprit.kind != Culprit::Kind::kNone;
         culprit = Tighten(bounds_)) {
      LeaveOut(culprit);
      bounds_ = before;
      Fix(bounds_, n, Clamped(offset_ns));
    }
    Refine(bounds_);
    for (size_t clock = 0; clock < clocks_.size(); ++clock) {
      const bool was_known = before.clocks_[clock].bounds.front().is_known();
      if (!was_known && bounds_.clocks_[clock].bounds.front().is_known()) islands_[clock] = n;
    }
  }
}

ClockBounds ClockAlignment::Against(size_t axis) const {
  ClockBounds bounds = Unbounded();
  Fix(bounds, axis, 0);
  if (Tighten(bounds).kind == Culprit::Kind::kNone) Refine(bounds);
  return bounds;
}

bool ClockAlignment::IsBound(size_t clock, int64_t time_ns) const {
  return At(clock, time_ns).is_known();
}

int64_t ClockAlignment::OffsetAt(size_t clock, int64_t time_ns) const {
  const OffsetBounds bounds = At(clock, time_ns);
  if (bounds.is_known()) return bounds.Middle();
  const Clock& of = clocks_[clock];
  if (of.is_cpu) return 0;  // fixed in Solve(), so always known
  const int64_t cpu_ns = OffsetAt(of.node, nodes_[of.node].end_ns);
  return of.fastest_delivery_ns < kMostTraceNs ? cpu_ns + of.fastest_delivery_ns : cpu_ns;
}

}  // namespace nccl_exporter::exporter
