// SPDX-License-Identifier: Apache-2.0
// Written by hand, as exporter/exposition/protobuf_encoder.cc; the test decodes it with protoc.
#include "exporter/trace/perfetto_trace.h"

#include <string_view>
#include <type_traits>
#include <utility>

#include "exporter/exposition/protobuf_wire.h"
#include "exporter/text/utf8.h"
#include "exporter/trace/slice_arguments.h"

namespace nccl_exporter::exporter {
namespace {

using collector::NodeTrace;

// Numbers of proto/perfetto_trace.proto.
constexpr uint32_t kTracePacket = 1;
constexpr uint32_t kPacketClockSnapshot = 6, kPacketTimestamp = 8, kPacketSequenceId = 10,
                   kPacketTrackEvent = 11, kPacketTimestampClockId = 58,
                   kPacketTrackDescriptor = 60;
constexpr uint32_t kSnapshotClocks = 1, kSnapshotPrimary = 2, kClockId = 1, kClockTimestamp = 2;
constexpr uint32_t kTrackUuid = 1, kTrackName = 2, kTrackProcess = 3, kTrackParent = 5,
                   kTrackCounter = 8;
constexpr uint32_t kProcessPid = 1, kProcessName = 6;
constexpr uint32_t kEventAnnotations = 4, kEventType = 9, kEventTrackUuid = 11,
                   kEventCategories = 22, kEventName = 23, kEventCounterValue = 30,
                   kEventFlowIds = 47, kEventTerminatingFlowIds = 48;
constexpr uint32_t kAnnotationUint = 3, kAnnotationDouble = 5, kAnnotationString = 6,
                   kAnnotationName = 10;
constexpr uint64_t kSliceBegin = 1, kSliceEnd = 2, kInstant = 3, kCounter = 4;
constexpr uint64_t kRealtime = 1, kMonotonic = 3, kBoottime = 6;

// Any number but 0: packets of one writer.
constexpr uint64_t kSequence = 1;

// A longer name is no name.
constexpr size_t kNameLimitBytes = 512;

class TraceWriter {
 public:
  TraceWriter(const Timeline& timeline, const std::vector<NodeTrace>& nodes)
      : timeline_(timeline), nodes_(nodes), flows_(timeline.slices.size()) {
    for (size_t i = 0; i < timeline.arrows.size(); ++i) {
      flows_[timeline.arrows[i].from].starts.push_back(i);
      flows_[timeline.arrows[i].to].ends.push_back(i);
    }
  }

  std::string Write() {
    AddClocks();
    for (size_t i = 0; i < timeline_.processes.size(); ++i) AddProcess(i);
    for (size_t i = 0; i < timeline_.tracks.size(); ++i) AddTrack(i);
    AddSlices();
    for (const TimelineCount& count : timeline_.counts) AddCount(count);
    return std::move(out_);
  }

 private:
  struct Flows {
    std::vector<size_t> starts, ends;  // arrows
  };

  static uint64_t ProcessUuid(size_t process) { return 1 + process; }
  uint64_t TrackUuid(size_t track) const { return 1 + timeline_.processes.size() + track; }
  static uint64_t FlowId(size_t arrow) { return 1 + arrow; }

  void AddPacket(std::string_view packet) { wire::AppendBytes(kTracePacket, packet, out_); }

  // The daemon's CLOCK_REALTIME is the axis. Perfetto takes times as of CLOCK_BOOTTIME unless a
  // snapshot says how the clocks are related: here they show the same.
  void AddClocks() {
    std::string snapshot;
    const auto add = [&](uint64_t id, int64_t ns) {
      std::string clock;
      wire::AppendUint(kClockId, id, clock);
      wire::AppendUint(kClockTimestamp, static_cast<uint64_t>(ns), clock);
      wire::AppendBytes(kSnapshotClocks, clock, snapshot);
    };
    add(kRealtime, timeline_.base_ns);
    add(kBoottime, timeline_.base_ns);
    if (timeline_.monotonic_base_ns > 0) add(kMonotonic, timeline_.monotonic_base_ns);
    wire::AppendUint(kSnapshotPrimary, kRealtime, snapshot);
    std::string packet;
    wire::AppendUint(kPacketSequenceId, kSequence, packet);
    wire::AppendBytes(kPacketClockSnapshot, snapshot, packet);
    AddPacket(packet);
  }
  void AddDescriptor(const std::string& descriptor) {
    std::string packet;
    wire::AppendUint(kPacketSequenceId, kSequence, packet);
    wire::AppendBytes(kPacketTrackDescriptor, descriptor, packet);
    AddPacket(packet);
  }
  void AddProcess(size_t process) {
    const std::string name = ValidUtf8(timeline_.processes[process], kNameLimitBytes);
    std::string of_process, descriptor;
    wire::AppendUint(kProcessPid, 1 + process, of_process);
    wire::AppendBytes(kProcessName, name, of_process);
    wire::AppendUint(kTrackUuid, ProcessUuid(process), descriptor);
    wire::AppendBytes(kTrackName, name, descriptor);
    wire::AppendBytes(kTrackProcess, of_process, descriptor);
    AddDescriptor(descriptor);
  }
  void AddTrack(size_t track) {
    const TimelineTrack& of_track = timeline_.tracks[track];
    std::string descriptor;
    wire::AppendUint(kTrackUuid, TrackUuid(track), descriptor);
    wire::AppendUint(kTrackParent, ProcessUuid(of_track.process), descriptor);
    wire::AppendBytes(kTrackName, ValidUtf8(of_track.name, kNameLimitBytes), descriptor);
    if (of_track.is_counter) wire::AppendBytes(kTrackCounter, "", descriptor);
    AddDescriptor(descriptor);
  }

  // The parts of an event that all have; `more` is the rest.
  void AddEvent(int64_t at_ns, uint64_t type, size_t track, std::string_view more) {
    std::string event, packet;
    wire::AppendUint(kEventType, type, event);
    wire::AppendUint(kEventTrackUuid, TrackUuid(track), event);
    event += more;
    wire::AppendUint(kPacketTimestamp, static_cast<uint64_t>(at_ns), packet);
    wire::AppendUint(kPacketTimestampClockId, kRealtime, packet);
    wire::AppendUint(kPacketSequenceId, kSequence, packet);
    wire::AppendBytes(kPacketTrackEvent, event, packet);
    AddPacket(packet);
  }
  static void AppendFixed64(uint32_t field, uint64_t value, std::string& out) {
    wire::AppendDouble(field, std::bit_cast<double>(value), out);
  }

  // Slices nest: each ends before the next one on its track that is not in it begins.
  void AddSlices() {
    std::vector<std::vector<size_t>> open(timeline_.tracks.size());
    const auto end = [&](std::vector<size_t>& slices) {
      const TimelineSlice& slice = timeline_.slices[slices.back()];
      AddEvent(slice.end_ns, kSliceEnd, slice.track, "");
      slices.pop_back();
    };
    for (size_t i = 0; i < timeline_.slices.size(); ++i) {
      const TimelineSlice& slice = timeline_.slices[i];
      std::vector<size_t>& outer = open[slice.track];
      while (!outer.empty() && timeline_.slices[outer.back()].end_ns <= slice.begin_ns &&
             timeline_.slices[outer.back()].end_ns < slice.end_ns)
        end(outer);
      BeginSlice(i);
      outer.push_back(i);
    }
    for (std::vector<size_t>& slices : open) {
      while (!slices.empty()) end(slices);
    }
  }
  void BeginSlice(size_t number) {
    const TimelineSlice& slice = timeline_.slices[number];
    std::string more;
    wire::AppendBytes(kEventCategories, "nccl", more);
    wire::AppendBytes(kEventName, SliceName(slice, nodes_, timeline_.ranks), more);
    VisitArguments(slice, nodes_, timeline_.ranks, [&](std::string_view name, const auto& value) {
      wire::AppendBytes(kEventAnnotations, Annotation(name, value), more);
    });
    for (const size_t arrow : flows_[number].starts)
      AppendFixed64(kEventFlowIds, FlowId(arrow), more);
    for (const size_t arrow : flows_[number].ends) {
      if (timeline_.arrows[arrow].is_call)
        AppendFixed64(kEventTerminatingFlowIds, FlowId(arrow), more);
    }
    AddEvent(slice.begin_ns, kSliceBegin, slice.track, more);
    for (const size_t arrow : flows_[number].ends) {
      if (!timeline_.arrows[arrow].is_call) AddArrival(arrow);
    }
  }
  // An arrow ends at an event: that the last rank enters is one on the track of each that waited.
  void AddArrival(size_t arrow) {
    const TimelineArrow& of_arrow = timeline_.arrows[arrow];
    const TimelineSlice& last = timeline_.slices[of_arrow.from];
    std::string more;
    wire::AppendBytes(kEventCategories, "nccl", more);
    const collector::TracedCommunicator& communicator = CommunicatorOf(last, nodes_);
    wire::AppendBytes(
        kEventName,
        timeline_.ranks.TextOf(ProcessOf(last, nodes_), communicator, communicator.rank) +
            " enters",
        more);
    AppendFixed64(kEventTerminatingFlowIds, FlowId(arrow), more);
    AddEvent(of_arrow.at_ns, kInstant, timeline_.slices[of_arrow.to].track, more);
  }
  template <typename Value>
  static std::string Annotation(std::string_view name, const Value& value) {
    std::string annotation;
    wire::AppendBytes(kAnnotationName, name, annotation);
    if constexpr (std::is_convertible_v<Value, std::string_view>) {
      wire::AppendBytes(kAnnotationString, value, annotation);
    } else if constexpr (std::is_floating_point_v<Value>) {
      wire::AppendDouble(kAnnotationDouble, value, annotation);
    } else {
      wire::AppendUint(kAnnotationUint, value, annotation);
    }
    return annotation;
  }
  void AddCount(const TimelineCount& count) {
    std::string more;
    wire::AppendUint(kEventCounterValue, static_cast<uint64_t>(count.value), more);
    AddEvent(count.at_ns, kCounter, count.track, more);
  }

  const Timeline& timeline_;
  const std::vector<NodeTrace>& nodes_;
  std::vector<Flows> flows_;  // by slice
  std::string out_;
};

}  // namespace

std::string PerfettoTrace(const Timeline& timeline, const std::vector<NodeTrace>& nodes) {
  return TraceWriter(timeline, nodes).Write();
}

}  // namespace nccl_exporter::exporter
