// SPDX-License-Identifier: Apache-2.0
#include "exporter/trace/trace_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "exporter/text/utf8.h"
#include "exporter/trace/certain_waits.h"
#include "exporter/trace/chrome_events.h"
#include "exporter/trace/chrome_trace.h"

namespace nccl_exporter::exporter {
namespace {

using collector::NodeTrace;
using collector::TracedCommunicator;
using collector::TracedOperation;
using collector::TracedProcess;

constexpr double kNsPerMs = 1e6, kNsPerUs = 1e3, kNsPerSecond = 1e9, kBytesPerGb = 1e9;

template <typename... Arguments>
void Line(std::string& out, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  fmt::format_to(std::back_inserter(out), format, std::forward<Arguments>(arguments)...);
  out += '\n';
}

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

void AddTotals(const TracedNodes& nodes, std::string& out) {
  size_t processes = 0, operations = 0, in_flight = 0;
  for (const NodeTrace& node : nodes) processes += node.processes.size();
  VisitCommunicators(nodes, [&](const TracePlace&, const TracedCommunicator& communicator) {
    operations += communicator.operations.size();
    in_flight += communicator.in_flight.size();
  });
  const NodeTrace& first = nodes.front();
  Line(out, "{} operations of {} processes on {} nodes in {:.3f} s; {} in flight at the end",
       operations, processes, nodes.size(),
       static_cast<double>(first.end_ns - first.begin_ns) / kNsPerSecond, in_flight);
}

// A length, and the operation that it is of, or that follows it.
using Length = std::tuple<int64_t, const TracedOperation*, TracePlace>;

// The longest ones first; the others are left out.
void KeepLongest(std::vector<Length>& lengths) {
  const size_t count = std::min(kSummaryRows, lengths.size());
  std::ranges::partial_sort(lengths, lengths.begin() + static_cast<ptrdiff_t>(count),
                            std::greater<>(), [](const Length& one) { return std::get<0>(one); });
  lengths.resize(count);
}

void AddSlowest(const TracedNodes& nodes, std::string& out) {
  std::vector<Length> all;
  VisitCommunicators(nodes, [&](const TracePlace& place, const TracedCommunicator& communicator) {
    for (const TracedOperation& operation : communicator.operations)
      all.emplace_back(operation.stop_ns - operation.start_ns, &operation, place);
  });
  KeepLongest(all);
  if (all.empty()) return;
  Line(out, "\nSlowest operations");
  Line(out, "{:>12} {:<14} {:>10} {:>14} {:>10}  {}", "MS", "COLLECTIVE", "SEQUENCE", "BYTES",
       "BUS GB/S", "WHERE");
  for (const auto& [length_ns, operation, place] : all) {
    const auto bandwidth = BusBandwidthOf(place.CommunicatorIn(nodes), *operation);
    const std::string shown =
        bandwidth ? fmt::format("{:.1f}", static_cast<double>(*bandwidth) / kBytesPerGb) : "-";
    Line(out, "{:>12.3f} {:<14} {:>10} {:>14} {:>10}  {}", Ms(length_ns),
         TraitsOf(operation->function).name, operation->sequence, operation->bytes, shown,
         WhereText(nodes, place));
  }
}

// The time between two kernels of a communicator: what the GPU did otherwise, or nothing.
void AddGaps(const TracedNodes& nodes, std::string& out) {
  std::vector<Length> gaps;
  VisitCommunicators(nodes, [&](const TracePlace& place, const TracedCommunicator& communicator) {
    std::vector<const TracedOperation*> order;
    for (const TracedOperation& operation : communicator.operations) order.push_back(&operation);
    std::ranges::sort(order, {}, &TracedOperation::start_ns);
    int64_t busy_until_ns = order.empty() ? 0 : order.front()->stop_ns;
    for (const TracedOperation* const operation : order) {
      if (operation->start_ns > busy_until_ns)
        gaps.emplace_back(operation->start_ns - busy_until_ns, operation, place);
      busy_until_ns = std::max(busy_until_ns, operation->stop_ns);
    }
  });
  KeepLongest(gaps);
  if (gaps.empty()) return;
  Line(out, "\nLongest gaps between two traced operations of a communicator");
  Line(out, "{:>12} {:<14} {:>10}  {}", "MS", "BEFORE", "SEQUENCE", "WHERE");
  for (const auto& [gap_ns, operation, place] : gaps)
    Line(out, "{:>12.3f} {:<14} {:>10}  {}", Ms(gap_ns), TraitsOf(operation->function).name,
         operation->sequence, WhereText(nodes, place));
}

// Waits of one rank in collectives whose last rank is certain.
struct Waits {
  size_t last = 0;
  int64_t caused_ns = 0;  // waits of the others for it
  int64_t waited_ns = 0;
};

void AddWaits(const ClockAlignment& alignment, std::string& out) {
  const TracedNodes& nodes = alignment.nodes();
  std::map<TracePlace, Waits> by_rank;
  const std::vector<CertainWait> certain = CertainWaits(alignment);
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
       "\nOf {} collectives that several ranks of this trace share, {} have one that surely "
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

// Adds lines about detail that was requested and is not there.
void AddMissingDetail(const std::string& where, const collector::TracedDetail& detail,
                      const TracedCommunicator& communicator, std::string& out) {
  if (detail.lost_operations + detail.lost_parts != 0)
    Line(out,
         "{}: records of {} operations, {} channels and steps were lost: the ring was full, or a "
         "thread slept while it wrote one",
         where, detail.lost_operations, detail.lost_parts);
  if (detail.orphans != 0)
    Line(out, "{}: {} channels and steps belong to operations without a record", where,
         detail.orphans);
  if (detail.beyond_limit != 0)
    Line(out, "{}: {} records are beyond the limit of a trace", where, detail.beyond_limit);
  if (!detail.operations.empty() && detail.channels.empty())
    Line(out, "{}: no channels: its timing source is {} ({})", where,
         NameOf(communicator.timing_source), NameOf(communicator.timing_reason));
  if (detail.has_steps && !detail.operations.empty() && detail.steps.empty())
    Line(out, "{}: no network steps: nothing left the node, or network timing is off", where);
}

}  // namespace

std::string MissingText(const TracedNodes& nodes) {
  std::string out;
  bool has_point_to_point = false;
  VisitCommunicators(nodes, [&](const TracePlace& place, const TracedCommunicator& communicator) {
    const std::string where = WhereText(nodes, place);
    if (communicator.overwritten != 0)
      Line(out, "{}: {} operations were overwritten before they were read", where,
           communicator.overwritten);
    if (communicator.beyond_limit != 0)
      Line(out, "{}: {} operations are beyond the limit of a trace", where,
           communicator.beyond_limit);
    const NodeTrace& node = nodes[place.node];
    if (communicator.whole_since_ns > node.begin_ns)
      Line(out, "{}: the ring holds the last {:.3f} s only", where,
           static_cast<double>(node.end_ns - communicator.whole_since_ns) / kNsPerSecond);
    if (communicator.untimed.value_or(0) != 0)
      Line(out, "{}: {} operations completed without times", where, *communicator.untimed);
    const TimingReason reason = communicator.timing_reason;
    if (!HasDurations(communicator.timing_source))
      Line(out, "{}: no kernel times: {} ({})", where, NameOf(reason),
           RowIn(kTimingReasons, reason).meaning);
    if (communicator.detail) AddMissingDetail(where, *communicator.detail, communicator, out);
    if (!communicator.in_flight_is_known)
      Line(out, "{}: no event shows which operations are in flight", where);
    has_point_to_point |= std::ranges::any_of(communicator.operations, [](const auto& operation) {
      return TraitsOf(operation.function).is_point_to_point;
    });
  });
  for (const NodeTrace& node : nodes) {
    for (const TracedProcess& process : node.processes) {
      const std::string where = Printable(DisplayNameOf(node, process));
      if (!process.detail_fault.empty())
        Line(out, "{}: no channels and no steps: {}", where, Printable(process.detail_fault));
      for (size_t i = 0; i < kLossCount; ++i) {
        if (process.losses[i] != 0)
          Line(out, "{}: {} {}: {} ({})", where, process.losses[i],
               node.is_polled ? "losses in the window" : "losses since its start",
               kLosses[i].reason, kLosses[i].meaning);
      }
    }
  }
  if (has_point_to_point)
    Line(out,
         "Send and Recv: the ring of completions has neither their peer nor a sequence number");
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
  AddTotals(nodes, out);
  if (nodes.size() > 1) out += "\nClocks\n" + AlignmentText(alignment);
  AddSlowest(nodes, out);
  AddWaits(alignment, out);
  AddGaps(nodes, out);
  const std::string missing = MissingText(nodes);
  if (!missing.empty()) out += "\nMissing\n" + missing;
  return out;
}

}  // namespace nccl_exporter::exporter
