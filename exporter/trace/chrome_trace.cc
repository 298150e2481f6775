// SPDX-License-Identifier: Apache-2.0
#include "exporter/trace/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "exporter/trace/certain_waits.h"
#include "exporter/trace/chrome_events.h"
#include "exporter/trace/trace_section.h"
#include "proto/collective.h"

namespace nccl_exporter::exporter {
namespace {

using collector::TracedCommunicator;
using collector::TracedOperation;
using collector::TracedProcess;

constexpr int64_t kNsPerUs = 1000;
constexpr double kBytesPerGb = 1e9;

double Us(int64_t ns) { return static_cast<double>(ns) / static_cast<double>(kNsPerUs); }

std::string NameOf(Function function) { return std::string(TraitsOf(function).name); }

// Bytes per second; nothing if the operation shares its launch, or has no factor.
std::optional<uint64_t> BusBandwidthOf(const TracedCommunicator& communicator,
                                       const TracedOperation& operation) {
  if (operation.members != 1 || operation.stop_ns <= operation.start_ns) return std::nullopt;
  const uint64_t bandwidth =
      BusBandwidth(operation.function, operation.bytes, static_cast<uint32_t>(communicator.ranks),
                   static_cast<uint64_t>(operation.stop_ns - operation.start_ns));
  return bandwidth == 0 ? std::nullopt : std::optional(bandwidth);
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
  TraceDrawing(const ClockAlignment& alignment, int64_t base_ns)
      : alignment_(alignment),
        nodes_(alignment.nodes()),
        ranks_(alignment.nodes()),
        events_(base_ns) {}

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

  // The global rank, where it is known, and that of the communicator. A negative one is not known.
  void WriteRank(const TracePlace& place, const std::string& name, int64_t number) {
    if (number < 0) return;
    const auto rank = static_cast<uint64_t>(number);
    if (const auto global = ranks_.GlobalOf(place, rank)) events_.WriteArgument(name, *global);
    events_.WriteArgument("comm_" + name, rank);
  }
  // `operation`: complete, or in flight.
  void WriteOperation(const TracePlace& place, const auto& operation) {
    const TracedCommunicator& communicator = place.CommunicatorIn(nodes_);
    events_.WriteArgument("comm", fmt::format("{:016x}", communicator.id));
    events_.WriteArgument("collective", NameOf(operation.function));
    WriteRank(place, "rank", static_cast<int64_t>(communicator.rank));
    events_.WriteArgument("ranks", communicator.ranks);
    events_.WriteArgument("sequence", operation.sequence);
    events_.WriteArgument("bytes", operation.bytes);
  }
  // The bounds of the time of a slice.
  void WriteUncertainty(size_t clock, int64_t time_ns) {
    const OffsetBounds bounds = alignment_.At(clock, time_ns);
    if (bounds.is_known()) events_.WriteArgument("uncertainty_us", Us(bounds.Uncertainty()));
  }

  void DrawPlace(const TracePlace& place, size_t process) {
    const TracedCommunicator& communicator = place.CommunicatorIn(nodes_);
    if (communicator.operations.empty() && communicator.in_flight.empty()) return;
    const Drawn of{place,
                   communicator,
                   process,
                   alignment_.CpuClockOf(place.node),
                   alignment_.KernelClockOf(place),
                   DisplayNameOf(communicator)};
    AddKernels(of, AddCalls(of));
    AddInFlight(of);
    AddCounts(of);
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
      const int64_t begin_ns = alignment_.RealtimeOf(of.cpu, call_ns);
      int64_t end_ns = begin_ns + kDrawnCallNs;
      if (next < order.size())
        end_ns = std::clamp(alignment_.RealtimeOf(of.cpu, operations[order[next]].call_ns),
                            begin_ns, end_ns);
      for (; k < next; ++k) {
        const TracedOperation& operation = operations[order[k]];
        TraceSlice& call = calls[order[k]] = {of.process, track, begin_ns, end_ns, order[k]};
        events_.Add(call, NameOf(operation.function) + " call", [&] {
          WriteOperation(of.place, operation);
          WriteUncertainty(of.cpu, call_ns);
        });
      }
    }
    return calls;
  }

  // On one track, and on further ones where they overlap, as those of one launch do: slices of a
  // track nest or follow each other.
  std::vector<TraceSlice> KernelsInLanes(const Drawn& of) {
    const std::vector<TracedOperation>& operations = of.communicator.operations;
    std::vector<Part> parts;
    for (size_t i = 0; i < operations.size(); ++i) {
      const int64_t begin_ns = alignment_.RealtimeOf(of.kernel, operations[i].start_ns);
      const int64_t length_ns = operations[i].stop_ns - operations[i].start_ns;
      parts.emplace_back(begin_ns, begin_ns + std::max<int64_t>(length_ns, 0), i);
    }
    std::ranges::sort(parts);
    std::vector<std::pair<size_t, int64_t>> lanes;  // track, and the end of its latest slice
    std::vector<TraceSlice> slices;
    for (const Part& part : parts) {
      const auto& [begin_ns, end_ns, number] = part;
      auto lane = std::ranges::find_if(
          lanes, [begin = begin_ns](const auto& one) { return one.second <= begin; });
      if (lane == lanes.end()) {
        const std::string ordinal = lanes.empty() ? "" : fmt::format(" ({})", lanes.size() + 1);
        lanes.emplace_back(events_.AddTrack("kernels of " + of.name + ordinal), 0);
        lane = std::prev(lanes.end());
      }
      lane->second = end_ns;
      slices.push_back({of.process, lane->first, begin_ns, end_ns, number});
    }
    return slices;
  }

  void AddKernels(const Drawn& of, const std::vector<TraceSlice>& calls) {
    const std::vector<TracedOperation>& operations = of.communicator.operations;
    std::vector<TraceSlice>& kernels = kernels_[of.place];
    kernels.resize(operations.size());
    for (const TraceSlice& kernel : KernelsInLanes(of)) {
      const TracedOperation& operation = operations[kernel.number];
      events_.Add(kernel, NameOf(operation.function), [&] {
        WriteOperation(of.place, operation);
        events_.WriteArgument("launch_members", operation.members);
        if (const auto bandwidth = BusBandwidthOf(of.communicator, operation))
          events_.WriteArgument("bus_bandwidth_gb_per_s",
                                static_cast<double>(*bandwidth) / kBytesPerGb);
        WriteUncertainty(of.kernel, operation.start_ns);
      });
      kernels[kernel.number] = kernel;
      const TraceSlice& call = calls[kernel.number];
      if (call.begin_ns <= kernel.begin_ns) events_.AddArrow("call", call, kernel, kernel.begin_ns);
    }
  }

  // All end with the window, so they nest.
  void AddInFlight(const Drawn& of) {
    const auto& in_flight = of.communicator.in_flight;
    if (in_flight.empty()) return;
    const size_t track = events_.AddTrack("in flight of " + of.name);
    const int64_t end_ns = alignment_.RealtimeOf(of.cpu, nodes_[of.place.node].end_ns);
    std::vector<Part> parts;
    for (size_t i = 0; i < in_flight.size(); ++i)
      parts.emplace_back(std::min(alignment_.RealtimeOf(of.cpu, in_flight[i].call_ns), end_ns),
                         end_ns, i);
    std::ranges::sort(parts);
    for (const auto& [begin_ns, until_ns, number] : parts) {
      const collector::TracedInFlight& operation = in_flight[number];
      events_.Add({of.process, track, begin_ns, until_ns, number},
                  NameOf(operation.function) + " in flight", [&] {
                    WriteOperation(of.place, operation);
                    WriteRank(of.place, "peer", operation.peer);
                    events_.WriteArgument("parts_done", operation.parts_done);
                    events_.WriteArgument("parts_announced", operation.parts_announced);
                    WriteUncertainty(of.cpu, operation.call_ns);
                  });
    }
  }

  // Called and not complete, by the traced operations.
  void AddCounts(const Drawn& of) {
    std::map<int64_t, int64_t> changes;
    for (const TracedOperation& operation : of.communicator.operations) {
      const int64_t called_ns = alignment_.RealtimeOf(of.cpu, operation.call_ns);
      ++changes[called_ns];
      --changes[std::max(called_ns, alignment_.RealtimeOf(of.kernel, operation.stop_ns))];
    }
    for (const collector::TracedInFlight& operation : of.communicator.in_flight)
      ++changes[alignment_.RealtimeOf(of.cpu, operation.call_ns)];
    int64_t value = 0;
    for (const auto& [at_ns, change] : changes) {
      value += change;
      if (change != 0) events_.AddCount("operations in flight of " + of.name, at_ns, value);
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
        slice.end_ns = last.begin_ns;
        const TracePlace& place = members[i].place;
        const TracedCommunicator& communicator = place.CommunicatorIn(nodes_);
        const uint64_t rank = members[wait.last].rank;
        events_.Add(slice, "waits for " + ranks_.TextOf(place, rank), [&] {
          WriteOperation(place, communicator.operations[slice.number]);
          WriteRank(place, "last_rank", static_cast<int64_t>(rank));
          events_.WriteArgument("uncertainty_us", Us(wait.waits_ns[i].Uncertainty()));
        });
      }
    }
  }

  const ClockAlignment& alignment_;
  const TracedNodes& nodes_;
  const TraceRanks ranks_;
  ChromeEvents events_;
  std::map<TracePlace, std::vector<TraceSlice>> kernels_;  // by operation
};

// At most the begin of everything in the trace, a whole number of microseconds of the epoch.
int64_t BaseOf(const ClockAlignment& alignment) {
  const TracedNodes& nodes = alignment.nodes();
  int64_t base_ns = alignment.RealtimeOf(alignment.CpuClockOf(0), nodes.front().begin_ns);
  VisitCommunicators(nodes, [&](const TracePlace& place, const TracedCommunicator& communicator) {
    const auto include = [&](size_t clock, int64_t time_ns) {
      base_ns = std::min(base_ns, alignment.RealtimeOf(clock, time_ns));
    };
    const size_t cpu = alignment.CpuClockOf(place.node), kernel = alignment.KernelClockOf(place);
    for (const TracedOperation& operation : communicator.operations) {
      include(cpu, operation.call_ns);
      include(kernel, operation.start_ns);
    }
    for (const auto& operation : communicator.in_flight) include(cpu, operation.call_ns);
  });
  base_ns = std::max<int64_t>(base_ns, 0);
  return base_ns - base_ns % kNsPerUs;
}

}  // namespace

std::string ChromeTrace(const ClockAlignment& alignment) {
  const int64_t base_ns = BaseOf(alignment);
  return fmt::format("{{\"baseTimeNanoseconds\":{},\"displayTimeUnit\":\"ns\",\n\"{}\":{},\n",
                     base_ns, kTraceKey, TraceSection(alignment.nodes())) +
         "\"traceEvents\":[\n" + TraceDrawing(alignment, base_ns).Draw() + "\n]}\n";
}

}  // namespace nccl_exporter::exporter
