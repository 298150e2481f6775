// SPDX-License-Identifier: Apache-2.0
#include "exporter/trace/trace_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "exporter/text/text_line.h"
#include "exporter/text/utf8.h"
#include "exporter/trace/certain_waits.h"
#include "exporter/trace/time_classes.h"
#include "exporter/trace/trace_place.h"

namespace nccl_exporter::exporter {
namespace {

using collector::NodeTrace;
using collector::TracedCommunicator;
using collector::TracedProcess;

constexpr double kNsPerMs = 1e6, kNsPerUs = 1e3, kNsPerSecond = 1e9;

double Ms(int64_t ns) { return static_cast<double>(ns) / kNsPerMs; }
double Us(int64_t ns) { return static_cast<double>(ns) / kNsPerUs; }

// On a terminal; without the quotes.
std::string Printable(const std::string& text) {
  std::string quoted;
  AppendQuoted(text, quoted);
  return quoted.substr(1, quoted.size() - 2);
}

// Names of a process and of its communicator.
std::string WhereText(const TracedNodes& nodes, const TracePlace& place) {
  return Printable(DisplayNameOf(nodes[place.node], place.ProcessIn(nodes)) + ", " +
                   DisplayNameOf(place.CommunicatorIn(nodes)));
}

// Waits of one rank in collectives whose last rank is certain.
struct Waits {
  size_t last = 0;
  int64_t caused_ns = 0;  // waits of the others for it
  int64_t waited_ns = 0;
};

// Reasons of the inconclusive time.
void AddInconclusive(const TracedNodes& nodes, const CommunicatorTime& time, std::string& out) {
  std::string reasons;
  for (size_t i = static_cast<size_t>(TimeClass::kNotShared); i < time.ns.size(); ++i) {
    if (time.ns[i] == 0) continue;
    reasons += fmt::format("{}{:.3f} ms: {}", reasons.empty() ? "" : "; ", time.ns[i] / kNsPerMs,
                           kTimeClasses[i].meaning);
  }
  if (!reasons.empty())
    Line(out, "{}: inconclusive {}", Printable(DisplayNameOf(time.place.CommunicatorIn(nodes))),
         reasons);
}

void AddTimes(const TracedNodes& nodes, const std::vector<CommunicatorTime>& times,
              std::string& out) {
  Line(out, "Time of the ranks of this trace in each communicator, in ms");
  Line(out, "{:>12} {:>12} {:>12} {:>12} {:>12} {:>12}  {:<17}  {}", "TIME", "TRANSFER",
       "ARRIVAL SKEW", "LAUNCH SKEW", "MISMATCH", "INCONCLUSIVE", "MOSTLY", "COMMUNICATOR");
  for (const CommunicatorTime& time : times) {
    const auto ms = [&](TimeClass one) { return time.Of(one) / kNsPerMs; };
    const TracedCommunicator& communicator = time.place.CommunicatorIn(nodes);
    Line(out,
         "{:>12.3f} {:>12.3f} {:>12.3f} {:>12.3f} {:>12.3f} {:>12.3f}  {:<17}  {}, ranks {} of {}, "
         "operations {}",
         time.Total() / kNsPerMs, ms(TimeClass::kTransfer), ms(TimeClass::kArrivalSkew),
         ms(TimeClass::kLaunchSkew), ms(TimeClass::kMismatch), time.Inconclusive() / kNsPerMs,
         time.Verdict(), Printable(DisplayNameOf(communicator)), time.traced_ranks,
         communicator.ranks, time.operations);
  }
  for (const CommunicatorTime& time : times) AddInconclusive(nodes, time, out);
}

void AddWaits(const ClockAlignment& alignment, const std::vector<CertainWait>& certain,
              std::string& out) {
  const TracedNodes& nodes = alignment.nodes();
  std::map<TracePlace, Waits> by_rank;
  for (const CertainWait& wait : certain) {
    const std::vector<Participation>& members = alignment.meetings()[wait.meeting].members;
    Waits& last = by_rank[members[wait.last].place];
    ++last.last;
    for (size_t i = 0; i < members.size(); ++i) {
      by_rank[members[i].place].waited_ns += wait.waits_ns[i].Middle();
      last.caused_ns += wait.waits_ns[i].Middle();
    }
  }
  Line(out,
       "Of {} collectives that several ranks of this trace share, {} have one that surely "
       "entered last",
       alignment.meetings().size(), certain.size());
  if (certain.empty()) return;
  std::vector<std::pair<TracePlace, Waits>> rows(by_rank.begin(), by_rank.end());
  std::ranges::stable_sort(rows, std::greater<>(),
                           [](const auto& row) { return row.second.caused_ns; });
  Line(out, "{:>8} {:>16} {:>12}  {}", "LAST", "OTHERS WAIT MS", "WAITS MS", "RANK");
  for (const auto& [place, waits] : rows) {
    const TracedCommunicator& communicator = place.CommunicatorIn(nodes);
    Line(out, "{:>8} {:>16.3f} {:>12.3f}  rank {} of {}, {}", waits.last, Ms(waits.caused_ns),
         Ms(waits.waited_ns), communicator.rank, Printable(DisplayNameOf(communicator)),
         Printable(DisplayNameOf(nodes[place.node], place.ProcessIn(nodes))));
  }
}

// By node: how closely the starts of its kernels are known against those of the first node that
// they met, at most. Calls far ahead of the GPU leave the CPU's clock less certain than this.
std::vector<std::optional<int64_t>> KernelUncertainties(const ClockAlignment& alignment) {
  std::vector<std::optional<int64_t>> most_ns(alignment.nodes().size());
  std::map<size_t, ClockBounds> against;  // clock of the first node
  const auto node_of = [](const Participation& member) { return member.place.node; };
  for (const Meeting& meeting : alignment.meetings()) {
    const auto axis = std::ranges::find(meeting.members, 0u, node_of);
    if (axis == meeting.members.end() || alignment.IsLeftOut(meeting)) continue;
    ClockBounds& bounds = against[axis->clock];
    if (bounds.empty()) bounds = alignment.Against(axis->clock);
    for (const Participation& member : meeting.members) {
      const OffsetBounds of_member = bounds[member.clock].At(member.start_ns);
      std::optional<int64_t>& most = most_ns[node_of(member)];
      if (of_member.is_known()) most = std::max(most.value_or(0), of_member.Uncertainty());
    }
  }
  return most_ns;
}

// A line if there are any.
void AddCount(const std::string& where, uint64_t count, std::string_view what, std::string& out) {
  if (count != 0) Line(out, "{}: {} {}", where, count, what);
}

void AddMissing(const NodeTrace& node, const std::string& where,
                const TracedCommunicator& communicator, std::string& out) {
  AddCount(where, communicator.overwritten, "operations were overwritten before they were read",
           out);
  AddCount(where, communicator.beyond_limit, "operations are beyond the limit of a trace", out);
  if (communicator.whole_since_ns > node.begin_ns)
    Line(out, "{}: the ring holds the last {:.3f} s only", where,
         static_cast<double>(node.end_ns - communicator.whole_since_ns) / kNsPerSecond);
  AddCount(where, communicator.untimed.value_or(0), "operations completed without times", out);
  const TimingReason reason = communicator.timing_reason;
  if (!HasDurations(communicator.timing_source))
    Line(out, "{}: no kernel times: {} ({})", where, NameOf(reason),
         RowIn(kTimingReasons, reason).meaning);
  if (!communicator.in_flight_is_known)
    Line(out, "{}: no event shows which operations are in flight", where);
}

}  // namespace

std::string MissingText(const TracedNodes& nodes) {
  std::string out;
  VisitCommunicators(nodes, [&](const TracePlace& place, const TracedCommunicator& communicator) {
    AddMissing(nodes[place.node], WhereText(nodes, place), communicator, out);
  });
  for (const NodeTrace& node : nodes) {
    for (const TracedProcess& process : node.processes) {
      const std::string where = Printable(DisplayNameOf(node, process));
      const std::string_view since = node.is_polled ? "in the window" : "since its start";
      for (size_t i = 0; i < kLossCount; ++i)
        AddCount(where, process.losses[i],
                 fmt::format("losses {}: {} ({})", since, kLosses[i].reason, kLosses[i].meaning),
                 out);
    }
  }
  return out;
}

std::string AlignmentText(const ClockAlignment& alignment) {
  std::string out;
  const TracedNodes& nodes = alignment.nodes();
  const std::vector<std::optional<int64_t>> kernels_ns = KernelUncertainties(alignment);
  for (size_t n = 1; n < nodes.size(); ++n) {
    const NodeTrace& node = nodes[n];
    const size_t clock = alignment.CpuClockOf(n);
    const auto offset_at = [&](int64_t time_ns) {
      return alignment.OffsetAt(clock, time_ns) + nodes[0].realtime_offset_ns -
             node.realtime_offset_ns;
    };
    if (alignment.IslandOf(clock) != alignment.IslandOf(0)) {
      Line(out,
           "{}: not bound to {}, since they share no timed collective: CLOCK_REALTIME as it is",
           Printable(node.node), Printable(nodes[0].node));
      continue;
    }
    const int64_t most_ns = std::max(alignment.At(clock, node.begin_ns).Uncertainty(),
                                     alignment.At(clock, node.end_ns).Uncertainty());
    Line(out,
         "{}: {:+.1f} us at the begin, {:+.1f} us at the end, against {}; uncertain by {:.1f} us",
         Printable(node.node), Us(offset_at(node.begin_ns)), Us(offset_at(node.end_ns)),
         Printable(nodes[0].node), Us(most_ns));
    if (kernels_ns[n])
      Line(out, "{}: kernels against those of {} uncertain by {:.1f} us", Printable(node.node),
           Printable(nodes[0].node), Us(*kernels_ns[n]));
  }
  if (alignment.contradictions() != 0)
    Line(out, "{} communicators or GPUs contradict the others and align nothing",
         alignment.contradictions());
  return out;
}

std::string TraceSummary(const ClockAlignment& alignment) {
  const TracedNodes& nodes = alignment.nodes();
  std::string out;
  if (nodes.size() > 1) out += "Clocks\n" + AlignmentText(alignment) + "\n";
  const std::vector<CertainWait> certain = CertainWaits(alignment);
  const std::vector<CommunicatorTime> times = TimeClasses(alignment, certain);
  if (!times.empty()) AddTimes(nodes, times, out), out += "\n";
  AddWaits(alignment, certain, out);
  const std::string missing = MissingText(nodes);
  if (!missing.empty()) out += "\nMissing\n" + missing;
  return out;
}

}  // namespace nccl_exporter::exporter
