// SPDX-License-Identifier: Apache-2.0
#include "exporter/trace/certain_waits.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>

namespace nccl_exporter::exporter {
namespace {

// The member that probably entered last. Only this one is judged.
size_t ProbablyLast(const ClockAlignment& alignment, const Meeting& meeting) {
  const auto last = std::ranges::max_element(meeting.members, {}, [&](const auto& member) {
    return member.start_ns + alignment.OffsetAt(member.clock, member.start_ns);
  });
  return static_cast<size_t>(last - meeting.members.begin());
}

struct Moment {
  size_t clock = 0;
  int64_t at_ns = 0;
};

// Time from one moment to the other. `bounds` are against some axis, which may be one of the
// two clocks. The limits where it is not known.
OffsetBounds ApartNs(const Moment& from, const Moment& to, const ClockBounds& bounds) {
  const OffsetBounds of_from = bounds[from.clock].At(from.at_ns);
  const OffsetBounds of_to = bounds[to.clock].At(to.at_ns);
  // A GPU's clock may count from 1970: its offset to a CPU's is beyond those of is_known().
  for (const OffsetBounds& of : {of_from, of_to})
    if (!IsKnown(of.least_ns) || !IsKnown(of.most_ns)) return {};
  // Two ranks may share a GPU: its clock has no uncertainty but for its ticks.
  const bool is_same = from.clock == to.clock;
  const int64_t apart_ns = Clamped(to.at_ns - from.at_ns);
  return {.least_ns = apart_ns - kGpuTickNs + (is_same ? 0 : of_to.least_ns - of_from.most_ns),
          .most_ns = apart_ns + kGpuTickNs + (is_same ? 0 : of_to.most_ns - of_from.least_ns)};
}

Moment StartOf(const Participation& member) { return {member.clock, member.start_ns}; }
Moment CallOf(const ClockAlignment& alignment, const Participation& member) {
  const auto& operations = member.place.CommunicatorIn(alignment.nodes()).operations;
  return {alignment.CpuClockOf(member.place.node), operations[member.operation].call_ns};
}

// Part of a wait that was before the call of `last`, which entered `queued_ns` after it. A member
// enters after its own call, so it has waited no longer than the calls are apart.
OffsetBounds LaunchPartNs(const ClockAlignment& alignment, const Participation& member,
                          const Participation& last, const OffsetBounds& waited_ns,
                          const OffsetBounds& queued_ns, const ClockBounds& bounds) {
  const auto is_bound = [&](const Participation& one) {
    return one.place.CommunicatorIn(alignment.nodes()).CallIsBound();
  };
  OffsetBounds part{.least_ns = 0, .most_ns = std::max<int64_t>(waited_ns.most_ns, 0)};
  // An event after the launch announces the call late: it may have been earlier.
  if (is_bound(last) && queued_ns.is_known())
    part.least_ns = std::max<int64_t>(waited_ns.least_ns - queued_ns.most_ns, 0);
  if (queued_ns.is_known())
    part.most_ns =
        std::min(part.most_ns, waited_ns.most_ns - std::max<int64_t>(queued_ns.least_ns, 0));
  if (is_bound(member)) {
    const OffsetBounds apart_ns =
        ApartNs(CallOf(alignment, member), CallOf(alignment, last), bounds);
    part.most_ns = std::min(part.most_ns, apart_ns.most_ns);
  }
  part.most_ns = std::max(part.most_ns, part.least_ns);
  return part;
}

std::optional<CertainWait> Judge(const ClockAlignment& alignment, size_t number, size_t last,
                                 const ClockBounds& bounds) {
  const Meeting& meeting = alignment.meetings()[number];
  CertainWait wait{.meeting = number, .last = last, .waits_ns = {}, .launch_ns = {}};
  const Participation& latest = meeting.members[last];
  const OffsetBounds queued_ns = ApartNs(CallOf(alignment, latest), StartOf(latest), bounds);
  for (const Participation& member : meeting.members) {
    if (&member == &latest) {
      wait.waits_ns.push_back({.least_ns = 0, .most_ns = 0});
      wait.launch_ns.push_back({.least_ns = 0, .most_ns = 0});
      continue;
    }
    const OffsetBounds waited = ApartNs(StartOf(member), StartOf(latest), bounds);
    if (!waited.is_known() || waited.least_ns <= 0) return std::nullopt;
    wait.waits_ns.push_back(waited);
    wait.launch_ns.push_back(LaunchPartNs(alignment, member, latest, waited, queued_ns, bounds));
  }
  return wait;
}

}  // namespace

std::vector<CertainWait> CertainWaits(const ClockAlignment& alignment) {
  using Candidates = std::vector<std::pair<size_t, size_t>>;  // meetings, and their last
  std::map<size_t, Candidates> by_clock;
  for (size_t i = 0; i < alignment.meetings().size(); ++i) {
    const Meeting& meeting = alignment.meetings()[i];
    if (alignment.IsLeftOut(meeting)) continue;
    const size_t last = ProbablyLast(alignment, meeting);
    by_clock[meeting.members[last].clock].emplace_back(i, last);
  }
  std::vector<std::pair<size_t, Candidates>> most_first(by_clock.begin(), by_clock.end());
  std::ranges::stable_sort(most_first, std::greater<>(),
                           [](const auto& one) { return one.second.size(); });
  std::vector<CertainWait> waits;
  for (size_t i = 0; i < most_first.size(); ++i) {
    const auto& [clock, candidates] = most_first[i];
    const ClockBounds bounds = i < kMostAxes ? alignment.Against(clock) : alignment.Bounds();
    for (const auto& [number, last] : candidates) {
      if (auto wait = Judge(alignment, number, last, bounds)) waits.push_back(std::move(*wait));
    }
  }
  std::ranges::sort(waits, {}, &CertainWait::meeting);
  return waits;
}

}  // namespace nccl_exporter::exporter
