// SPDX-License-Identifier: Apache-2.0
#include "exporter/trace/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "exporter/trace/certain_waits.h"
#include "exporter/trace/chrome_events.h"
#include "exporter/trace/trace_section.h"

namespace nccl_exporter::exporter {
namespace {

using collector::NodeTrace;
using collector::TracedCommunicator;
using collector::TracedOperation;
using collector::TracedProcess;

int64_t RealtimeOf(const ClockAlignment& alignment, size_t clock, int64_t time_ns) {
  return time_ns + alignment.OffsetAt(clock, time_ns) +
         alignment.nodes().front().realtime_offset_ns;
}

// A communicator on the way to its tracks.
struct Drawn {
  TracePlace place;
  const TracedCommunicator& communicator;
  size_t process;
  size_t cpu, kernel;  // clocks
  std::string name;
};

// Begin and end on the axis, and a place in the list of its kind.
using Part = std::tuple<int64_t, int64_t, size_t>;

class TraceDrawing {
 public:
  TraceDrawing(const ClockAlignment& alignment, int64_t base_ns, int64_t first_pid)
      : alignment_(alignment),
        nodes_(alignment.nodes()),
        events_(alignment.nodes(), base_ns, first_pid) {}

  std::string Draw() {
    for (const auto& [n, p] : ProcessesInOrder()) {
      const TracedProcess& process = nodes_[n].processes[p];
      const size_t number = events_.AddProcess(DisplayNameOf(nodes_[n], process));
      for (uint32_t c = 0; c < process.communicators.size(); ++c) DrawPlace({n, p, c}, number);
    }
    AddWaits();
    return events_.Take();
  }

 private:
  // Places of node and process, by job and global rank.
  std::vector<std::pair<uint32_t, uint32_t>> ProcessesInOrder() const {
    std::vector<std::pair<uint32_t, uint32_t>> order;
    for (uint32_t n = 0; n < nodes_.size(); ++n) {
      for (uint32_t p = 0; p < nodes_[n].processes.size(); ++p) order.emplace_back(n, p);
    }
    std::ranges::stable_sort(order, {}, [&](const auto& place) {
      const TracedProcess& process = nodes_[place.first].processes[place.second];
      return std::tuple(process.job, process.name_space,
                        GlobalRankOf(process).value_or(std::numeric_limits<uint64_t>::max()));
    });
    return order;
  }
  int64_t RealtimeOf(size_t clock, int64_t time_ns) const {
    return exporter::RealtimeOf(alignment_, clock, time_ns);
  }
  std::optional<int64_t> UncertaintyOf(size_t clock, int64_t time_ns) const {
    const OffsetBounds bounds = alignment_.At(clock, time_ns);
    return bounds.is_known() ? std::optional(bounds.Uncertainty()) : std::nullopt;
  }
  static TraceSlice SliceOf(const Drawn& of, SliceKind kind, size_t track, const Part& part) {
    const auto& [begin_ns, end_ns, operation] = part;
    return {.kind = kind,
            .process = of.process,
            .track = track,
            .begin_ns = begin_ns,
            .end_ns = end_ns,
            .place = of.place,
            .operation = operation};
  }

  void DrawPlace(const TracePlace& place, size_t process) {
    const TracedCommunicator& communicator = place.CommunicatorIn(nodes_);
    const bool has_detail = communicator.detail && !communicator.detail->operations.empty();
    if (communicator.operations.empty() && communicator.in_flight.empty() && !has_detail) return;
    const Drawn of{place,
                   communicator,
                   process,
                   alignment_.CpuClockOf(place.node),
                   alignment_.KernelClockOf(place),
                   DisplayNameOf(communicator)};
    AddKernels(of, AddCalls(of));
    AddInFlight(of);
    AddCounts(of);
    if (!has_detail) return;
    AddChannels(of);
    AddSteps(of);
  }

  // The calls of one group begin at one time: they are drawn within each other. Returns those of
  // the operations.
  std::vector<TraceSlice> AddCalls(const Drawn& of) {
    const std::vector<TracedOperation>& operations = of.communicator.operations;
    const size_t track = events_.AddTrack("calls of " + of.name);
    std::vector<size_t> order(operations.size());
    std::vector<TraceSlice> calls(order.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, {}, [&](size_t i) { return operations[i].call_ns; });
    for (size_t k = 0; k < order.size();) {
      const int64_t call_ns = operations[order[k]].call_ns;
      size_t next = k;
      while (next < order.size() && operations[order[next]].call_ns == call_ns) ++next;
      const int64_t begin_ns = RealtimeOf(of.cpu, call_ns);
      int64_t end_ns = begin_ns + kDrawnCallNs;
      if (next < order.size())
        end_ns = std::clamp(RealtimeOf(of.cpu, operations[order[next]].call_ns), begin_ns, end_ns);
      for (; k < next; ++k) {
        TraceSlice& call = calls[order[k]] =
            SliceOf(of, SliceKind::kCall, track, {begin_ns, end_ns, order[k]});
        call.uncertainty_ns = UncertaintyOf(of.cpu, call_ns);
        events_.Add(call);
      }
    }
    return calls;
  }

  // On one track, and on further ones where they overlap, as those of one launch do: slices of a
  // track nest or follow each other.
  std::vector<TraceSlice> InLanes(const Drawn& of, SliceKind kind, const std::string& name,
                                  std::vector<Part> parts) {
    std::ranges::sort(parts);
    std::vector<std::pair<size_t, int64_t>> lanes;  // track, and the end of its latest slice
    std::vector<TraceSlice> slices;
    for (const Part& part : parts) {
      const auto& [begin_ns, end_ns, number] = part;
      auto lane = std::ranges::find_if(
          lanes, [begin = begin_ns](const auto& one) { return one.second <= begin; });
      if (lane == lanes.end()) {
        const std::string ordinal = lanes.empty() ? "" : fmt::format(" ({})", lanes.size() + 1);
        lanes.emplace_back(events_.AddTrack(name + " of " + of.name + ordinal), 0);
        lane = std::prev(lanes.end());
      }
      lane->second = end_ns;
      slices.push_back(SliceOf(of, kind, lane->first, part));
    }
    return slices;
  }
  Part KernelPart(const Drawn& of, int64_t start_ns, int64_t stop_ns, size_t number) const {
    const int64_t begin_ns = RealtimeOf(of.kernel, start_ns);
    return {begin_ns, begin_ns + std::max<int64_t>(stop_ns - start_ns, 0), number};
  }

  void AddKernels(const Drawn& of, const std::vector<TraceSlice>& calls) {
    const std::vector<TracedOperation>& operations = of.communicator.operations;
    std::vector<Part> parts;
    for (size_t i = 0; i < operations.size(); ++i)
      parts.push_back(KernelPart(of, operations[i].start_ns, operations[i].stop_ns, i));
    std::vector<TraceSlice>& kernels = kernels_[of.place];
    kernels.resize(operations.size());
    for (TraceSlice& kernel : InLanes(of, SliceKind::kKernel, "kernels", std::move(parts))) {
      kernel.uncertainty_ns = UncertaintyOf(of.kernel, operations[kernel.operation].start_ns);
      events_.Add(kernel);
      kernels[kernel.operation] = kernel;
      const TraceSlice& call = calls[kernel.operation];
      if (call.begin_ns <= kernel.begin_ns) events_.AddArrow("call", call, kernel, kernel.begin_ns);
    }
  }

  // All end with the window, so they nest.
  void AddInFlight(const Drawn& of) {
    const auto& in_flight = of.communicator.in_flight;
    if (in_flight.empty()) return;
    const size_t track = events_.AddTrack("in flight of " + of.name);
    const int64_t end_ns = RealtimeOf(of.cpu, nodes_[of.place.node].end_ns);
    std::vector<Part> parts;
    for (size_t i = 0; i < in_flight.size(); ++i)
      parts.emplace_back(std::min(RealtimeOf(of.cpu, in_flight[i].call_ns), end_ns), end_ns, i);
    std::ranges::sort(parts);
    for (const Part& part : parts) {
      TraceSlice slice = SliceOf(of, SliceKind::kInFlight, track, part);
      slice.uncertainty_ns = UncertaintyOf(of.cpu, in_flight[slice.operation].call_ns);
      events_.Add(slice);
    }
  }

  // Called and not complete, by the traced operations.
  void AddCounts(const Drawn& of) {
    std::map<int64_t, int64_t> changes;
    for (const TracedOperation& operation : of.communicator.operations) {
      const int64_t called_ns = RealtimeOf(of.cpu, operation.call_ns);
      ++changes[called_ns];
      --changes[std::max(called_ns, RealtimeOf(of.kernel, operation.stop_ns))];
    }
    for (const collector::TracedInFlight& operation : of.communicator.in_flight)
      ++changes[RealtimeOf(of.cpu, operation.call_ns)];
    int64_t value = 0;
    for (const auto& [at_ns, change] : changes) {
      value += change;
      if (change != 0) events_.AddCount("operations in flight of " + of.name, at_ns, value);
    }
  }

  void AddChannels(const Drawn& of) {
    std::map<uint32_t, std::vector<Part>> by_channel;
    const auto& channels = of.communicator.detail->channels;
    for (size_t i = 0; i < channels.size(); ++i)
      by_channel[channels[i].channel].push_back(
          KernelPart(of, channels[i].start_ns, channels[i].stop_ns, i));
    for (auto& [channel, parts] : by_channel)
      AddParts(of, SliceKind::kChannel, fmt::format("channel {}", channel), std::move(parts));
  }
  void AddParts(const Drawn& of, SliceKind kind, const std::string& name, std::vector<Part> parts) {
    for (const TraceSlice& slice : InLanes(of, kind, name, std::move(parts))) events_.Add(slice);
  }

  void AddSteps(const Drawn& of) {
    std::map<std::tuple<bool, int, uint32_t>, std::vector<Part>> by_peer;
    const collector::TracedDetail& detail = *of.communicator.detail;
    for (size_t i = 0; i < detail.steps.size(); ++i) {
      const collector::TracedStep& step = detail.steps[i];
      const auto& operation = detail.network_operations[step.network_operation];
      const int64_t end_ns = RealtimeOf(of.cpu, step.end_ns);
      by_peer[{!operation.is_send, operation.peer, operation.channel}].emplace_back(
          end_ns - step.LengthNs(), end_ns, i);
    }
    for (auto& [key, parts] : by_peer) {
      const auto& [is_receive, peer, channel] = key;
      const std::string rank =
          peer < 0 ? "an unknown rank"
                   : events_.ranks().TextOf(of.place.ProcessIn(nodes_), of.communicator,
                                            static_cast<uint64_t>(peer));
      AddParts(
          of, SliceKind::kStep,
          fmt::format("network steps {} {}, channel {}", is_receive ? "from" : "to", rank, channel),
          std::move(parts));
    }
  }

  // Behind all others: each is within the slice of its kernel.
  void AddWaits() {
    const auto kernel_of = [&](const Participation& member) -> const TraceSlice& {
      return kernels_.at(member.place)[member.operation];
    };
    for (const CertainWait& wait : CertainWaits(alignment_)) {
      const std::vector<Participation>& members = alignment_.meetings()[wait.meeting].members;
      const TraceSlice& last = kernel_of(members[wait.last]);
      for (size_t i = 0; i < members.size(); ++i) {
        TraceSlice slice = kernel_of(members[i]);
        if (i == wait.last || last.begin_ns <= slice.begin_ns || last.begin_ns > slice.end_ns)
          continue;
        events_.AddArrow("last rank", last, slice, last.begin_ns);
        slice.kind = SliceKind::kWait;
        slice.end_ns = last.begin_ns;
        slice.uncertainty_ns = wait.waits_ns[i].Uncertainty();
        slice.awaited_rank = members[wait.last].rank;
        events_.Add(slice);
      }
    }
  }

  const ClockAlignment& alignment_;
  const TracedNodes& nodes_;
  ChromeEvents events_;
  std::map<TracePlace, std::vector<TraceSlice>> kernels_;  // by operation
};

// At most the begin of everything in the trace, a whole number of microseconds of the epoch.
int64_t BaseOf(const ClockAlignment& alignment) {
  constexpr int64_t kNsPerUs = 1000;
  const TracedNodes& nodes = alignment.nodes();
  int64_t base_ns = RealtimeOf(alignment, alignment.CpuClockOf(0), nodes.front().begin_ns);
  VisitCommunicators(nodes, [&](const TracePlace& place, const TracedCommunicator& communicator) {
    const auto include = [&](size_t clock, int64_t time_ns) {
      base_ns = std::min(base_ns, RealtimeOf(alignment, clock, time_ns));
    };
    const size_t cpu = alignment.CpuClockOf(place.node), kernel = alignment.KernelClockOf(place);
    for (const TracedOperation& operation : communicator.operations) {
      include(cpu, operation.call_ns);
      include(kernel, operation.start_ns);
    }
    for (const auto& operation : communicator.in_flight) include(cpu, operation.call_ns);
    if (!communicator.detail) return;
    for (const auto& channel : communicator.detail->channels) include(kernel, channel.start_ns);
    for (const auto& step : communicator.detail->steps) include(cpu, step.end_ns - step.LengthNs());
  });
  base_ns = std::max<int64_t>(base_ns, 0);
  return base_ns - base_ns % kNsPerUs;
}

}  // namespace

std::string EventsOf(const ClockAlignment& alignment, int64_t base_ns, int64_t first_pid) {
  return TraceDrawing(alignment, base_ns, first_pid).Draw();
}

std::string ChromeTrace(const ClockAlignment& alignment) {
  const int64_t base_ns = BaseOf(alignment);
  return fmt::format("{{\"baseTimeNanoseconds\":{},\"displayTimeUnit\":\"ns\",\n\"{}\":{},\n",
                     base_ns, kTraceKey, TraceSection(alignment.nodes())) +
         "\"traceEvents\":[\n" + EventsOf(alignment, base_ns, 1) + "\n]}\n";
}

std::string DisplayNameOf(const TracedCommunicator& communicator) {
  const std::string id = fmt::format("{:016x}", communicator.id);
  return communicator.name.empty() ? id : communicator.name + " " + id;
}

std::string DisplayNameOf(const NodeTrace& node, const TracedProcess& process) {
  const std::string rank = process.global_rank.empty() ? "" : "rank " + process.global_rank + " ";
  return fmt::format("{}({}, pid {}{})", rank, node.node, process.pid,
                     process.is_alive ? "" : ", ended");
}

}  // namespace nccl_exporter::exporter
