// SPDX-License-Identifier: Apache-2.0
#include "exporter/trace/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "exporter/trace/certain_waits.h"

namespace nccl_exporter::exporter {
namespace {

using collector::NodeTrace;
using collector::TracedCommunicator;
using collector::TracedOperation;
using collector::TracedProcess;

// A communicator on the way to its tracks.
struct Drawn {
  TracePlace place;
  const TracedCommunicator& communicator;
  size_t cpu, kernel;  // clocks
  std::string name;
};

// Begin and end on the axis, and a place in the list of its kind.
using Part = std::tuple<int64_t, int64_t, size_t>;

class TimelineMaker {
 public:
  explicit TimelineMaker(const ClockAlignment& alignment)
      : alignment_(alignment), nodes_(alignment.nodes()) {}

  Timeline Make() {
    timeline_.ranks = TraceRanks(nodes_);
    for (const auto& [n, p] : ProcessesInOrder()) {
      const TracedProcess& process = nodes_[n].processes[p];
      timeline_.processes.push_back(DisplayNameOf(nodes_[n], process));
      for (uint32_t c = 0; c < process.communicators.size(); ++c) AddCommunicator({n, p, c});
    }
    AddWaits();
    SetBase();
    return std::move(timeline_);
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
    return time_ns + alignment_.OffsetAt(clock, time_ns) + nodes_.front().realtime_offset_ns;
  }
  std::optional<int64_t> UncertaintyOf(size_t clock, int64_t time_ns) const {
    const OffsetBounds bounds = alignment_.At(clock, time_ns);
    return bounds.is_known() ? std::optional(bounds.Uncertainty()) : std::nullopt;
  }
  size_t AddTrack(std::string name, bool is_counter = false) {
    timeline_.tracks.push_back({.process = timeline_.processes.size() - 1,
                                .name = std::move(name),
                                .is_counter = is_counter});
    return timeline_.tracks.size() - 1;
  }
  size_t AddSlice(const Drawn& of, SliceKind kind, size_t track, const Part& part) {
    const auto& [begin_ns, end_ns, operation] = part;
    timeline_.slices.push_back({.kind = kind,
                                .track = track,
                                .begin_ns = begin_ns,
                                .end_ns = end_ns,
                                .place = of.place,
                                .operation = operation});
    return timeline_.slices.size() - 1;
  }

  void AddCommunicator(const TracePlace& place) {
    const TracedCommunicator& communicator = place.CommunicatorIn(nodes_);
    const bool has_detail = communicator.detail && !communicator.detail->operations.empty();
    if (communicator.operations.empty() && communicator.in_flight.empty() && !has_detail) return;
    const Drawn of{place, communicator, alignment_.CpuClockOf(place.node),
                   alignment_.KernelClockOf(place), DisplayNameOf(communicator)};
    AddKernels(of, AddCalls(of));
    AddInFlight(of);
    AddCounts(of);
    if (!has_detail) return;
    AddChannels(of);
    AddSteps(of);
  }

  // The calls of one group begin at one time: they are drawn within each other. Returns the slice
  // of each operation's call.
  std::vector<size_t> AddCalls(const Drawn& of) {
    const std::vector<TracedOperation>& operations = of.communicator.operations;
    const size_t track = AddTrack("calls of " + of.name);
    std::vector<size_t> order(operations.size()), slices(order.size());
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
        slices[order[k]] = AddSlice(of, SliceKind::kCall, track, {begin_ns, end_ns, order[k]});
        timeline_.slices.back().uncertainty_ns = UncertaintyOf(of.cpu, call_ns);
      }
    }
    return slices;
  }

  // On one track, and on further ones where they overlap, as those of one launch do: slices of a
  // track nest or follow each other.
  void AddParts(const Drawn& of, SliceKind kind, const std::string& name, std::vector<Part> parts) {
    std::ranges::sort(parts);
    std::vector<std::pair<size_t, int64_t>> lanes;  // track, and the end of its latest slice
    for (const Part& part : parts) {
      const auto& [begin_ns, end_ns, number] = part;
      auto lane = std::ranges::find_if(
          lanes, [begin = begin_ns](const auto& one) { return one.second <= begin; });
      if (lane == lanes.end()) {
        const std::string ordinal = lanes.empty() ? "" : fmt::format(" ({})", lanes.size() + 1);
        lanes.emplace_back(AddTrack(name + " of " + of.name + ordinal), 0);
        lane = std::prev(lanes.end());
      }
      lane->second = end_ns;
      AddSlice(of, kind, lane->first, part);
    }
  }
  Part KernelPart(const Drawn& of, int64_t start_ns, int64_t stop_ns, size_t number) const {
    const int64_t begin_ns = RealtimeOf(of.kernel, start_ns);
    return {begin_ns, begin_ns + std::max<int64_t>(stop_ns - start_ns, 0), number};
  }

  void AddKernels(const Drawn& of, const std::vector<size_t>& calls) {
    const std::vector<TracedOperation>& operations = of.communicator.operations;
    std::vector<Part> parts;
    for (size_t i = 0; i < operations.size(); ++i)
      parts.push_back(KernelPart(of, operations[i].start_ns, operations[i].stop_ns, i));
    std::vector<size_t>& slices = kernel_slices_[of.place];
    slices.resize(operations.size());
    size_t i = timeline_.slices.size();
    AddParts(of, SliceKind::kKernel, "kernels", std::move(parts));
    for (; i < timeline_.slices.size(); ++i) {
      TimelineSlice& kernel = timeline_.slices[i];
      kernel.uncertainty_ns = UncertaintyOf(of.kernel, operations[kernel.operation].start_ns);
      slices[kernel.operation] = i;
      const size_t call = calls[kernel.operation];
      if (timeline_.slices[call].begin_ns <= kernel.begin_ns)
        timeline_.arrows.push_back(
            {.from = call, .to = i, .at_ns = kernel.begin_ns, .is_call = true});
    }
  }

  // All end with the window, so they nest.
  void AddInFlight(const Drawn& of) {
    const auto& in_flight = of.communicator.in_flight;
    if (in_flight.empty()) return;
    const size_t track = AddTrack("in flight of " + of.name);
    const int64_t end_ns = RealtimeOf(of.cpu, nodes_[of.place.node].end_ns);
    std::vector<Part> parts;
    for (size_t i = 0; i < in_flight.size(); ++i)
      parts.emplace_back(std::min(RealtimeOf(of.cpu, in_flight[i].call_ns), end_ns), end_ns, i);
    std::ranges::sort(parts);
    for (const Part& part : parts) {
      AddSlice(of, SliceKind::kInFlight, track, part);
      timeline_.slices.back().uncertainty_ns =
          UncertaintyOf(of.cpu, in_flight[std::get<size_t>(part)].call_ns);
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
    const size_t track = AddTrack("operations in flight of " + of.name, true);
    int64_t value = 0;
    for (const auto& [at_ns, change] : changes) {
      value += change;
      if (change != 0) timeline_.counts.push_back({.track = track, .at_ns = at_ns, .value = value});
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
                   : timeline_.ranks.TextOf(of.place.ProcessIn(nodes_), of.communicator,
                                            static_cast<uint64_t>(peer));
      AddParts(
          of, SliceKind::kStep,
          fmt::format("network steps {} {}, channel {}", is_receive ? "from" : "to", rank, channel),
          std::move(parts));
    }
  }

  void AddWaits() {
    for (const CertainWait& wait : CertainWaits(alignment_)) {
      const std::vector<Participation>& members = alignment_.meetings()[wait.meeting].members;
      const size_t last = SliceOf(members[wait.last]);
      for (size_t i = 0; i < members.size(); ++i) {
        const size_t kernel = SliceOf(members[i]);
        TimelineSlice slice = timeline_.slices[kernel];
        const int64_t until_ns = timeline_.slices[last].begin_ns;
        if (i == wait.last || until_ns <= slice.begin_ns || until_ns > slice.end_ns) continue;
        timeline_.arrows.push_back({.from = last, .to = kernel, .at_ns = until_ns});
        slice.kind = SliceKind::kWait;
        slice.end_ns = until_ns;
        slice.uncertainty_ns = wait.waits_ns[i].Uncertainty();
        slice.awaited_rank = members[wait.last].rank;
        timeline_.slices.push_back(slice);
      }
    }
  }
  size_t SliceOf(const Participation& member) const {
    return kernel_slices_.at(member.place)[member.operation];
  }

  void SetBase() {
    constexpr int64_t kNsPerUs = 1000;
    if (nodes_.empty()) return;
    int64_t base_ns = RealtimeOf(alignment_.CpuClockOf(0), nodes_.front().begin_ns);
    for (const TimelineSlice& slice : timeline_.slices) base_ns = std::min(base_ns, slice.begin_ns);
    base_ns = std::max<int64_t>(base_ns, 0);
    timeline_.base_ns = base_ns - base_ns % kNsPerUs;
  }

  const ClockAlignment& alignment_;
  const TracedNodes& nodes_;
  Timeline timeline_;
  std::map<TracePlace, std::vector<size_t>> kernel_slices_;  // by operation
};

}  // namespace

Timeline MakeTimeline(const ClockAlignment& alignment) { return TimelineMaker(alignment).Make(); }

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
