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

// `bounds` are against some axis, which may be the clock of the last one.
std::optional<CertainWait> Judge(const Meeting& meeting, size_t number, size_t last,
                                 const ClockBounds& bounds) {
  CertainWait wait{.meeting = number, .last = last, .waits_ns = {}};
  const Participation& latest = meeting.members[last];
  const OffsetBounds of_last = bounds[latest.clock].At(latest.start_ns);
  if (!of_last.is_known()) return std::nullopt;
  for (const Participation& member : meeting.members) {
    if (&member == &latest) {
      wait.waits_ns.push_back({.least_ns = 0, .most_ns = 0});
      continue;
    }
    // Two ranks may share a GPU: its clock has no uncertainty but for its ticks.
    const bool is_same = member.clock == latest.clock;
    const OffsetBounds of_member = bounds[member.clock].At(member.start_ns);
    if (!of_member.is_known()) return std::nullopt;
    const int64_t apart_ns = latest.start_ns - member.start_ns;
    const OffsetBounds waited{
        .least_ns = apart_ns - kGpuTickNs + (is_same ? 0 : of_last.least_ns - of_member.most_ns),
        .most_ns = apart_ns + kGpuTickNs + (is_same ? 0 : of_last.most_ns - of_member.least_ns)};
    if (waited.least_ns <= 0) return std::nullopt;
    wait.waits_ns.push_back(waited);
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
      if (auto wait = Judge(alignment.meetings()[number], number, last, bounds))
        waits.push_back(std::move(*wait));
    }
  }
  std::ranges::sort(waits, {}, &CertainWait::meeting);
  return waits;
}

}  // namespace nccl_exporter::exporter
