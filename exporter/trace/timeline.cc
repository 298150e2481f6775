// SPDX-License-Identifier: Apache-2.0
#include "exporter/trace/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "exporter/trace/certain_waits.h"

namespace nccl_exporter::exporter {
namespace {

using collector::NodeTrace;
using collector::TracedCommunicator;
using collector::TracedInFlight;
using collector::TracedOperation;
using collector::TracedProcess;

constexpr int64_t kNsPerUs = 1000;

class TimelineMaker {
 public:
  explicit TimelineMaker(const ClockAlignment& alignment) : alignment_(alignment) {}

  Timeline Make() {
    const std::vector<NodeTrace>& nodes = alignment_.nodes();
    timeline_.ranks = TraceRanks(nodes);
    for (const auto& [n, p] : ProcessesInOrder(nodes)) {
      timeline_.processes.push_back(DisplayNameOf(nodes[n], nodes[n].processes[p]));
      for (uint32_t c = 0; c < nodes[n].processes[p].communicators.size(); ++c)
        AddCommunicator(n, p, c);
    }
    AddWaits();
    SetBase();
    return std::move(timeline_);
  }

 private:
  // Places of node and process, by job and global rank.
  static std::vector<std::pair<uint32_t, uint32_t>> ProcessesInOrder(
      const std::vector<NodeTrace>& nodes) {
    std::vector<std::pair<uint32_t, uint32_t>> order;
    for (uint32_t n = 0; n < nodes.size(); ++n) {
      for (uint32_t p = 0; p < nodes[n].processes.size(); ++p) order.emplace_back(n, p);
    }
    std::ranges::stable_sort(order, {}, [&](const auto& place) {
      const TracedProcess& process = nodes[place.first].processes[place.second];
      return std::tuple(process.job, process.name_space,
                        GlobalRankOf(process).value_or(std::numeric_limits<uint64_t>::max()));
    });
    return order;
  }
  const TracedCommunicator& CommunicatorOf(uint32_t n, uint32_t p, uint32_t c) const {
    return alignment_.nodes()[n].processes[p].communicators[c];
  }
  int64_t RealtimeOf(size_t clock, int64_t time_ns) const {
    return time_ns + alignment_.OffsetAt(clock, time_ns) +
           alignment_.nodes().front().realtime_offset_ns;
  }
  std::optional<int64_t> UncertaintyOf(size_t clock, int64_t time_ns) const {
    const OffsetBounds bounds = alignment_.At(clock, time_ns);
    if (!bounds.is_known()) return std::nullopt;
    return bounds.Uncertainty();
  }
  size_t AddTrack(std::string name, bool is_counter = false) {
    timeline_.tracks.push_back({.process = timeline_.processes.size() - 1,
                                .name = std::move(name),
                                .is_counter = is_counter});
    return timeline_.tracks.size() - 1;
  }

  void AddCommunicator(uint32_t n, uint32_t p, uint32_t c) {
    const TracedCommunicator& communicator = CommunicatorOf(n, p, c);
    const bool has_detail = communicator.detail && !communicator.detail->operations.empty();
    if (communicator.operations.empty() && communicator.in_flight.empty() && !has_detail) return;
    const std::string name = DisplayNameOf(communicator);
    const std::vector<size_t> calls = AddCalls(n, p, c, name);
    AddKernels(n, p, c, name, calls);
    AddInFlight(n, p, c, name);
    AddCounts(n, p, c, name);
    if (!has_detail) return;
    AddChannels(n, p, c, name);
    AddSteps(n, p, c, name);
  }

  // Returns the slice of each operation's call.
  std::vector<size_t> AddCalls(uint32_t n, uint32_t p, uint32_t c, const std::string& name) {
    const TracedCommunicator& communicator = CommunicatorOf(n, p, c);
    const size_t clock = alignment_.CpuClockOf(n), track = AddTrack("calls of " + name);
    std::vector<size_t> order(communicator.operations.size()), slices(order.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::stable_sort(order, {},
                             [&](size_t i) { return communicator.operations[i].call_ns; });
    for (size_t k = 0; k < order.size(); ++k) {
      const TracedOperation& operation = communicator.operations[order[k]];
      const int64_t begin_ns = RealtimeOf(clock, operation.call_ns);
      int64_t end_ns = begin_ns + kDrawnCallNs;
      // The calls of one group begin at one time: they are drawn within each other.
      if (k > 0 && communicator.operations[order[k - 1]].call_ns == operation.call_ns) {
        end_ns = timeline_.slices.back().end_ns;
      } else if (const auto next = std::ranges::upper_bound(
                     order.begin() + static_cast<ptrdiff_t>(k), order.end(), operation.call_ns, {},
                     [&](size_t i) { return communicator.operations[i].call_ns; });
                 next != order.end()) {
        end_ns = std::min(end_ns, RealtimeOf(clock, communicator.operations[*next].call_ns));
      }
      slices[order[k]] = timeline_.slices.size();
      timeline_.slices.push_back({.kind = SliceKind::kCall,
                                  .track = track,
                                  .begin_ns = begin_ns,
                                  .end_ns = std::max(begin_ns, end_ns),
                                  .uncertainty_ns = UncertaintyOf(clock, operation.call_ns),
                                  .awaited_rank = {},
                                  .node = n,
                                  .process = p,
                                  .communicator = c,
                                  .operation = order[k]});
    }
    return slices;
  }

  // Operations that overlap, as those of one launch do, get tracks of their own: slices of a track
  // nest or follow each other.
  void AddKernels(uint32_t n, uint32_t p, uint32_t c, const std::string& name,
                  const std::vector<size_t>& calls) {
    const TracedCommunicator& communicator = CommunicatorOf(n, p, c);
    const size_t clock = alignment_.KernelClockOf(n, p, c);
    std::vector<std::tuple<int64_t, int64_t, size_t>> kernels;
    for (size_t i = 0; i < communicator.operations.size(); ++i) {
      const TracedOperation& operation = communicator.operations[i];
      const int64_t begin_ns = RealtimeOf(clock, operation.start_ns);
      const int64_t length_ns = std::max<int64_t>(operation.stop_ns - operation.start_ns, 0);
      kernels.emplace_back(begin_ns, begin_ns + length_ns, i);
    }
    std::ranges::sort(kernels);
    std::vector<std::pair<size_t, int64_t>> lanes;  // track, and the end of its latest slice
    for (const auto& [begin_ns, end_ns, operation] : kernels) {
      auto lane = std::ranges::find_if(
          lanes, [begin = begin_ns](const auto& one) { return one.second <= begin; });
      if (lane == lanes.end()) {
        const std::string number = lanes.empty() ? "" : fmt::format(" ({})", lanes.size() + 1);
        lanes.emplace_back(AddTrack("kernels of " + name + number), 0);
        lane = std::prev(lanes.end());
      }
      lane->second = end_ns;
      const size_t slice = timeline_.slices.size();
      kernel_slices_[{n, p, c, operation}] = slice;
      const TracedOperation& traced = communicator.operations[operation];
      timeline_.slices.push_back({.kind = SliceKind::kKernel,
                                  .track = lane->first,
                                  .begin_ns = begin_ns,
                                  .end_ns = end_ns,
                                  .uncertainty_ns = UncertaintyOf(clock, traced.start_ns),
                                  .awaited_rank = {},
                                  .node = n,
                                  .process = p,
                                  .communicator = c,
                                  .operation = operation});
      const TimelineSlice& call = timeline_.slices[calls[operation]];
      if (call.begin_ns <= begin_ns) {
        timeline_.arrows.push_back(
            {.from = calls[operation], .to = slice, .at_ns = begin_ns, .is_call = true});
      }
    }
  }

  // All end with the window, so they nest.
  void AddInFlight(uint32_t n, uint32_t p, uint32_t c, const std::string& name) {
    const TracedCommunicator& communicator = CommunicatorOf(n, p, c);
    if (communicator.in_flight.empty()) return;
    const size_t clock = alignment_.CpuClockOf(n), track = AddTrack("in flight of " + name);
    const int64_t end_ns = RealtimeOf(clock, alignment_.nodes()[n].end_ns);
    const size_t first = timeline_.slices.size();
    for (size_t i = 0; i < communicator.in_flight.size(); ++i) {
      const int64_t call_ns = communicator.in_flight[i].call_ns;
      timeline_.slices.push_back({.kind = SliceKind::kInFlight,
                                  .track = track,
                                  .begin_ns = std::min(RealtimeOf(clock, call_ns), end_ns),
                                  .end_ns = end_ns,
                                  .uncertainty_ns = UncertaintyOf(clock, call_ns),
                                  .awaited_rank = {},
                                  .node = n,
                                  .process = p,
                                  .communicator = c,
                                  .operation = i});
    }
    std::ranges::stable_sort(timeline_.slices.begin() + static_cast<ptrdiff_t>(first),
                             timeline_.slices.end(), {}, &TimelineSlice::begin_ns);
  }

  // Called and not complete, by the traced operations.
  void AddCounts(uint32_t n, uint32_t p, uint32_t c, const std::string& name) {
    const TracedCommunicator& communicator = CommunicatorOf(n, p, c);
    const size_t cpu = alignment_.CpuClockOf(n), kernel = alignment_.KernelClockOf(n, p, c);
    std::map<int64_t, int64_t> changes;
    for (const TracedOperation& operation : communicator.operations) {
      const int64_t called_ns = RealtimeOf(cpu, operation.call_ns);
      ++changes[called_ns];
      --changes[std::max(called_ns, RealtimeOf(kernel, operation.stop_ns))];
    }
    for (const TracedInFlight& operation : communicator.in_flight)
      ++changes[RealtimeOf(cpu, operation.call_ns)];
    const size_t track = AddTrack("operations in flight of " + name, true);
    int64_t value = 0;
    for (const auto& [at_ns, change] : changes) {
      if (change == 0) continue;
      value += change;
      timeline_.counts.push_back({.track = track, .at_ns = at_ns, .value = value});
    }
  }

  // Begin and end in the clock of the trace, and its place in the list.
  using Part = std::tuple<int64_t, int64_t, size_t>;

  // On one track, and on further ones where they overlap.
  void AddParts(SliceKind kind, const std::string& name, std::vector<Part> parts,
                const TimelineSlice& origin) {
    std::ranges::sort(parts);
    std::vector<std::pair<size_t, int64_t>> lanes;  // track, and the end of its latest slice
    for (const auto& [begin_ns, end_ns, place] : parts) {
      auto lane = std::ranges::find_if(
          lanes, [begin = begin_ns](const auto& one) { return one.second <= begin; });
      if (lane == lanes.end()) {
        const std::string number = lanes.empty() ? "" : fmt::format(" ({})", lanes.size() + 1);
        lanes.emplace_back(AddTrack(name + number), 0);
        lane = std::prev(lanes.end());
      }
      lane->second = end_ns;
      TimelineSlice& slice = timeline_.slices.emplace_back(origin);
      slice.kind = kind;
      slice.track = lane->first;
      slice.begin_ns = begin_ns;
      slice.end_ns = end_ns;
      slice.operation = place;
    }
  }

  static TimelineSlice OriginOf(uint32_t n, uint32_t p, uint32_t c) {
    TimelineSlice origin;
    origin.node = n;
    origin.process = p;
    origin.communicator = c;
    return origin;
  }

  void AddChannels(uint32_t n, uint32_t p, uint32_t c, const std::string& name) {
    const size_t clock = alignment_.KernelClockOf(n, p, c);
    std::map<uint32_t, std::vector<Part>> parts;
    const auto& channels = CommunicatorOf(n, p, c).detail->channels;
    for (size_t i = 0; i < channels.size(); ++i) {
      const int64_t begin_ns = RealtimeOf(clock, channels[i].start_ns);
      const int64_t length_ns = std::max<int64_t>(channels[i].stop_ns - channels[i].start_ns, 0);
      parts[channels[i].channel].emplace_back(begin_ns, begin_ns + length_ns, i);
    }
    for (auto& [channel, of_channel] : parts) {
      AddParts(SliceKind::kChannel, fmt::format("channel {} of {}", channel, name),
               std::move(of_channel), OriginOf(n, p, c));
    }
  }

  void AddSteps(uint32_t n, uint32_t p, uint32_t c, const std::string& name) {
    const size_t clock = alignment_.CpuClockOf(n);
    std::map<std::tuple<bool, int, uint32_t>, std::vector<Part>> parts;
    const collector::TracedDetail& detail = *CommunicatorOf(n, p, c).detail;
    for (size_t i = 0; i < detail.steps.size(); ++i) {
      const collector::TracedStep& step = detail.steps[i];
      const collector::TracedNetworkOperation& operation =
          detail.network_operations[step.network_operation];
      const int64_t end_ns = RealtimeOf(clock, step.end_ns);
      parts[{!operation.is_send, operation.peer, operation.channel}].emplace_back(
          end_ns - step.LengthNs(), end_ns, i);
    }
    for (auto& [lane, of_lane] : parts) {
      const auto& [is_receive, peer, channel] = lane;
      AddParts(SliceKind::kStep,
               fmt::format("{} {}, channel {} of {}",
                           is_receive ? "network steps from" : "network steps to",
                           PeerText(n, p, c, peer), channel, name),
               std::move(of_lane), OriginOf(n, p, c));
    }
  }

  std::string PeerText(uint32_t n, uint32_t p, uint32_t c, int peer) const {
    if (peer < 0) return "an unknown rank";
    return timeline_.ranks.TextOf(alignment_.nodes()[n].processes[p], CommunicatorOf(n, p, c),
                                  static_cast<uint64_t>(peer));
  }

  void AddWaits() {
    std::vector<std::pair<size_t, TimelineSlice>> waits;  // with the kernel's slice
    for (const CertainWait& wait : CertainWaits(alignment_)) {
      const std::vector<Participation>& members = alignment_.meetings()[wait.meeting].members;
      const size_t last = SliceOf(members[wait.last]);
      for (size_t i = 0; i < members.size(); ++i) {
        if (i == wait.last) continue;
        const size_t kernel = SliceOf(members[i]);
        TimelineSlice slice = timeline_.slices[kernel];
        const int64_t until_ns = timeline_.slices[last].begin_ns;
        if (until_ns <= slice.begin_ns || until_ns > slice.end_ns) continue;
        timeline_.arrows.push_back({.from = last, .to = kernel, .at_ns = until_ns});
        slice.kind = SliceKind::kWait;
        slice.end_ns = until_ns;
        slice.uncertainty_ns = wait.waits_ns[i].Uncertainty();
        slice.awaited_rank = members[wait.last].rank;
        waits.emplace_back(kernel, slice);
      }
    }
    Nest(std::move(waits));
  }
  size_t SliceOf(const Participation& member) const {
    return kernel_slices_.at({member.node, member.process, member.communicator, member.operation});
  }

  // Each wait behind its kernel, in the order of the slices.
  void Nest(std::vector<std::pair<size_t, TimelineSlice>> waits) {
    std::ranges::sort(waits, {}, [](const auto& wait) { return wait.first; });
    std::vector<TimelineSlice> slices;
    std::vector<size_t> moved(timeline_.slices.size());
    slices.reserve(timeline_.slices.size() + waits.size());
    size_t next = 0;
    for (size_t i = 0; i < timeline_.slices.size(); ++i) {
      moved[i] = slices.size();
      slices.push_back(std::move(timeline_.slices[i]));
      for (; next < waits.size() && waits[next].first == i; ++next)
        slices.push_back(std::move(waits[next].second));
    }
    timeline_.slices = std::move(slices);
    for (TimelineArrow& arrow : timeline_.arrows) {
      arrow.from = moved[arrow.from];
      arrow.to = moved[arrow.to];
    }
  }

  void SetBase() {
    const std::vector<NodeTrace>& nodes = alignment_.nodes();
    if (nodes.empty()) return;
    int64_t base_ns = RealtimeOf(alignment_.CpuClockOf(0), nodes.front().begin_ns);
    for (const TimelineSlice& slice : timeline_.slices) base_ns = std::min(base_ns, slice.begin_ns);
    base_ns = std::max<int64_t>(base_ns, 0);
    timeline_.base_ns = base_ns - base_ns % kNsPerUs;
  }

  const ClockAlignment& alignment_;
  Timeline timeline_;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t, size_t>, size_t> kernel_slices_;
};

}  // namespace

Timeline MakeTimeline(const ClockAlignment& alignment) { return TimelineMaker(alignment).Make(); }

std::optional<uint64_t> BusBandwidthOf(const TracedCommunicator& communicator,
                                       const TracedOperation& operation) {
  if (operation.members != 1 || operation.stop_ns <= operation.start_ns) return std::nullopt;
  const uint64_t bandwidth =
      BusBandwidth(operation.function, operation.bytes, static_cast<uint32_t>(communicator.ranks),
                   static_cast<uint64_t>(operation.stop_ns - operation.start_ns));
  if (bandwidth == 0) return std::nullopt;
  return bandwidth;
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
