// SPDX-License-Identifier: Apache-2.0
// TimeClasses(), the time of each communicator of a trace, by what the time went to. Pure functions
// for any thread. docs/trace.md defines the classes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "exporter/trace/certain_waits.h"
#include "exporter/trace/clock_alignment.h"
#include "proto/code_table.h"

namespace nccl_exporter::exporter {

// The first are conclusive, those from kNotShared on are reasons why time is inconclusive.
enum class TimeClass : uint8_t {
  kTransfer,
  kArrivalSkew,
  kLaunchSkew,
  kMismatch,
  kNotShared,
  kOrder,
  kCall,
  kOutside,
  kOpen,
  kCount
};
inline constexpr CodeTable<TimeClass> kTimeClasses{{
    {TimeClass::kTransfer, "transfer", "all ranks were inside"},
    {TimeClass::kArrivalSkew, "arrival skew", "waits for a rank that had called, on a busy GPU"},
    {TimeClass::kLaunchSkew, "launch skew", "waits for a rank that had not called"},
    {TimeClass::kMismatch, "sequence mismatch", "ranks were in different calls"},
    {TimeClass::kNotShared, "not shared", "no operation of another rank to compare with"},
    {TimeClass::kOrder, "order", "which rank was last is within the uncertainty of the clocks"},
    {TimeClass::kCall, "call", "whether the last rank had called is not certain"},
    {TimeClass::kOutside, "outside", "transfer, or waits for ranks that the trace lacks"},
    {TimeClass::kOpen, "open", "an operation that has not ended"},
}};
static_assert(IsInOrder(kTimeClasses));
constexpr std::string_view NameOf(TimeClass one) { return RowIn(kTimeClasses, one).name; }

// An operation in flight counts if it was called so long before the end of the window: shorter ones
// may be queued behind others on the GPU.
inline constexpr int64_t kLeastOpenNs = 10'000'000'000;

// Times of all ranks of the trace together, in nanoseconds. Operations of one launch that overlap
// count each.
struct CommunicatorTime {
  TracePlace place = {};  // one of its ranks
  size_t traced_ranks = 0;
  size_t operations = 0;
  std::array<double, kCountOf<TimeClass>> ns{};

  double& Of(TimeClass one) { return ns[static_cast<size_t>(one)]; }
  double Of(TimeClass one) const { return ns[static_cast<size_t>(one)]; }
  double Total() const;
  double Inconclusive() const;
  // "sequence mismatch" if there is any; "inconclusive" if more than half of the time is; else the
  // class of more than half of the rest, or "mixed".
  std::string_view Verdict() const;
};

// Those with time, the most first. `waits` are CertainWaits() of the alignment.
std::vector<CommunicatorTime> TimeClasses(const ClockAlignment& alignment,
                                          const std::vector<CertainWait>& waits);

}  // namespace nccl_exporter::exporter
