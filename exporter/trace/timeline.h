// SPDX-License-Identifier: Apache-2.0
// Timeline, a trace as processes, tracks, slices, counters and arrows on one time axis. Times are
// nanoseconds since the epoch, by the clock of the first node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "exporter/trace/clock_alignment.h"
#include "exporter/trace/trace_ranks.h"

namespace nccl_exporter::exporter {

// Only the begin of a call is known. It is drawn this long, or until the next one.
inline constexpr int64_t kDrawnCallNs = 1000;

enum class SliceKind : uint8_t {
  kCall,      // of the API
  kKernel,    // from the first channel's start to the last one's stop
  kWait,      // part of a kernel: until the last rank surely entered
  kInFlight,  // from the call to the end of the window
  kChannel,   // of a kernel
  kStep,      // of a network operation, while it was the oldest one
};

struct TimelineSlice {
  SliceKind kind = SliceKind::kKernel;
  size_t track = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  // Its origin. `operation`: in operations, in in_flight, or in channels or steps of the detail.
  TracePlace place = {};
  size_t operation = 0;
  std::optional<int64_t> uncertainty_ns = {};  // of both times together; of a wait: of its length
  std::optional<uint64_t> awaited_rank = {};   // of a wait
};

// From the begin of one slice to a moment in another one.
struct TimelineArrow {
  size_t from = 0, to = 0;  // slices
  int64_t at_ns = 0;        // in the second one; the first begins then or earlier
  bool is_call = false;  // from a call to its kernel; false: from the last rank to one that waited
};

struct TimelineCount {
  size_t track = 0;
  int64_t at_ns = 0;
  int64_t value = 0;
};

struct TimelineTrack {
  size_t process = 0;
  std::string name;
  bool is_counter = false;
};

struct Timeline {
  int64_t base_ns = 0;  // at most the begin of everything in it, a whole number of microseconds
  TraceRanks ranks;
  std::vector<std::string> processes;  // by job and global rank; those without one come last
  std::vector<TimelineTrack> tracks;   // of each process together, in the order of display
  // Of each track in the order of their begin, outer ones first; but the waits come last.
  std::vector<TimelineSlice> slices;
  std::vector<TimelineCount> counts;  // of each track in their order
  std::vector<TimelineArrow> arrows;
};

// `alignment` is of the nodes of the trace. A pure function, for any thread.
Timeline MakeTimeline(const ClockAlignment& alignment);

// What people call a communicator: its name, or its id.
std::string DisplayNameOf(const collector::TracedCommunicator& communicator);
// "rank 5 (node-0, pid 4711)".
std::string DisplayNameOf(const collector::NodeTrace& node,
                          const collector::TracedProcess& process);

}  // namespace nccl_exporter::exporter
