// SPDX-License-Identifier: Apache-2.0
// ClockAlignment, what must be added to the times of each clock of a trace to put them on one time
// axis, with bounds that are proven. Two facts of operations prove them:
//
// - On a node, a kernel starts after its call and its end is delivered after it happened.
// - On all nodes, no rank leaves a collective before every rank has entered it.
//
// So each of them has a moment M, which some clocks enter before and some leave after:
// enter_i <= M <= leave_j for all i and j. These are difference constraints between the clocks: the
// closest bounds are shortest paths. Each clock has a vertex for each window of time
// (kLeastWindowNs), and each meeting has one. Clocks drift, so a bound becomes wider with the time
// from its event to the middle of its window, and from window to window. One clock is the axis: its
// offset is 0 all the time, and the others are bounded against it.
//
// The rate of the drift is at most kMostDrift. In a trace of at most kSteadyNs it is also taken to
// be nearly constant (kRateChange): then the bounds of an early and of a late window bound it, and
// bounds become wider by what is not known of it. Where that contradicts the constraints, it is not
// used.
//
// The bounds hold as long as both assumptions do. Constraints that contradict each other (another
// communicator with the same id, a clock that was set) are found: the communicator, or the GPU,
// whose constraint brings the contradiction is left out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "exporter/trace/clock_bounds.h"
#include "exporter/trace/trace_place.h"

namespace nccl_exporter::exporter {

// The steps in which a GPU's clock may tick: 1024 ns on some (A100).
inline constexpr int64_t kGpuTickNs = 1024;

// One member's part in a meeting, by its own clock.
struct Participation {
  size_t clock = 0;
  int64_t start_ns = -collector::kMostTraceNs;  // it entered then or later; the limit: not known
  int64_t stop_ns = collector::kMostTraceNs;    // it left before; the limit: not known
  // Where it came from: communicator and operation of the trace.
  TracePlace place = {};
  size_t operation = 0;
  uint64_t rank = 0;
};

// A collective that waits for all, on the ranks whose times the trace has, at least two; or the
// call or the delivery of an operation.
struct Meeting {
  size_t group = 0;  // GPU or communicator: meetings of one group are left out together
  std::vector<Participation> members;
};

// Whether its time stamps may be its own: it took less than a minute, or than it was in flight.
bool IsPlausibleDuration(const collector::TracedOperation& operation);

class ClockAlignment {
 public:
  // `nodes` outlive this object. The axis is CLOCK_MONOTONIC of the first node. Throws nothing.
  explicit ClockAlignment(const TracedNodes& nodes);

  // Numbers of clocks: the CPU clock of a node, and that of a communicator's kernel times.
  size_t CpuClockOf(size_t node) const { return node; }
  size_t KernelClockOf(const TracePlace& place) const { return kernel_clocks_.at(place); }

  // Against the axis. A clock that nothing binds to it has its own estimate: a node its
  // CLOCK_REALTIME, a GPU its deliveries. Then IsBound() is false.
  OffsetBounds At(size_t clock, int64_t time_ns) const { return bounds_[clock].At(time_ns); }
  int64_t OffsetAt(size_t clock, int64_t time_ns) const;
  // Nanoseconds since the epoch, by the clock of the first node.
  int64_t RealtimeOf(size_t clock, int64_t time_ns) const {
    return time_ns + OffsetAt(clock, time_ns) + nodes_.front().realtime_offset_ns;
  }
  bool IsBound(size_t clock, int64_t time_ns) const { return At(clock, time_ns).is_known(); }
  // Clocks of one island are bound to each other; the first node's is 0.
  size_t IslandOf(size_t clock) const { return islands_[clock]; }
  size_t clocks() const { return clocks_.size(); }

  const TracedNodes& nodes() const { return nodes_; }

  // Offsets of all clocks against the axis; unknown if nothing binds a clock.
  const ClockBounds& Bounds() const { return bounds_; }
  // Bounds of all clocks against `axis`, one of them: closer than those by way of another axis.
  ClockBounds Against(size_t axis) const;

  // Meetings of the collectives.
  const std::vector<Meeting>& meetings() const { return meetings_; }
  bool IsLeftOut(const Meeting& meeting) const { return group_is_left_out_[meeting.group]; }
  // Communicators and GPUs that were left out, since they contradict the others.
  size_t contradictions() const;

 private:
  struct Clock {
    size_t node = 0;
    int64_t least_ns = collector::kMostTraceNs, most_ns = -collector::kMostTraceNs;  // of times
    int64_t usual_delivery_ns = 0;  // median of delivered minus stop; 0: of a CPU

    void Include(int64_t from_ns, int64_t to_ns);
  };

  bool IsCpu(size_t clock) const { return clock < nodes_.size(); }
  void NumberClocks();
  void GatherOrders();
  void GatherMeetings();
  bool IsPlausible(const collector::TracedOperation& operation, size_t clock) const;
  ClockBounds Unbounded() const;
  // Tightens until nothing changes, or kMostPasses. Returns the group that brings a contradiction.
  std::optional<size_t> Tighten(ClockBounds& bounds) const;
  // False if the bounds contradict each other.
  static bool Apply(const Meeting& meeting, ClockBounds& bounds, bool& changes);
  void Refine(ClockBounds& bounds) const;
  void Solve();

  const TracedNodes& nodes_;
  std::vector<Clock> clocks_;  // CPUs first, in the order of the nodes
  std::map<TracePlace, size_t> kernel_clocks_;
  std::vector<Meeting> orders_;  // calls and deliveries; the group is the GPU's clock
  std::vector<Meeting> meetings_;
  std::vector<bool> group_is_left_out_;
  std::vector<size_t> islands_;
  ClockBounds bounds_;
};

}  // namespace nccl_exporter::exporter
