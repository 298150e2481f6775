// SPDX-License-Identifier: Apache-2.0
// Causes by which the plugin drops an event, ignores it, or rejects a time stamp. A cause is one
// row: its place in the segment's array of counters, its metric family and its value of the label
// `reason`. Append only.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "proto/code_table.h"

namespace nccl_exporter {

// The three families of data-quality counters.
enum class LossKind : uint8_t { kDropped, kUnmatched, kTimestampRejected, kCount };
inline constexpr CodeTable<LossKind> kLossKinds{{
    {LossKind::kDropped, "dropped", "not recorded, because there was no room"},
    {LossKind::kUnmatched, "unmatched", "an event that fits no live operation: ignored"},
    {LossKind::kTimestampRejected, "timestamp_rejected",
     "implausible times of an operation or of its launch: it is untimed, and counts here once"},
}};
static_assert(IsInOrder(kLossKinds));
constexpr std::string_view NameOf(LossKind kind) { return RowIn(kLossKinds, kind).name; }

enum class Loss : uint8_t {
  kNoFreeCommunicatorSlot = 0,
  kReservationFailed,
  kInFlightFull,
  kOperationAbandoned,
  kIncompleteAtFinalize,
  kUnknownContext,
  kForeignProcess,
  kUnknownHandle,
  kStaleHandle,
  kAfterCompletion,
  kChannelOutOfRange,
  kStopWithoutStart,
  kChannelsMissing,
  kStopBeforeStart,
  kLongerThanCpuTime,
  kZeroTimestamp,
  kClockMismatch,
  kOverlap,
  kRingOverrun,
  kDrift,
  kConcurrentRecording,
  kCommunicatorDrifting,
  kDisjointChannels,
  kLaunchMemberUntimed,
  kConcurrentStart,
  kMissingTimestamp,
  kUnproven,
  kPhaseMismatch,
  kNetworkFull,
  kNetworkIncomplete,
  kNetworkStepMismatch,
  kCount
};
inline constexpr int kLossCount = static_cast<int>(Loss::kCount);

struct LossTraits {
  Loss id;
  LossKind kind;
  std::string_view reason;   // label value
  std::string_view meaning;  // for the table in docs/metrics.md, for findings and traces
};

inline constexpr std::array<LossTraits, kLossCount> kLosses{{
    {Loss::kNoFreeCommunicatorSlot, LossKind::kDropped, "no_free_slot",
     "no free slot for the communicator: counted in the overflow slot, untimed"},
    {Loss::kReservationFailed, LossKind::kDropped, "reservation_failed",
     "no room in the segment's file system for a communicator's counters"},
    {Loss::kInFlightFull, LossKind::kDropped, "in_flight_full",
     "operation not followed: too many operations or launches in flight on its communicator"},
    {Loss::kOperationAbandoned, LossKind::kDropped, "abandoned",
     "operation dropped before its completion was seen: later operations had completed"},
    {Loss::kIncompleteAtFinalize, LossKind::kDropped, "incomplete_at_finalize",
     "operation not complete when its communicator was finalized"},
    {Loss::kUnknownContext, LossKind::kUnmatched, "unknown_context",
     "event of a communicator that this process does not know"},
    {Loss::kForeignProcess, LossKind::kUnmatched, "foreign_process",
     "proxy event on behalf of another process (PXN)"},
    {Loss::kUnknownHandle, LossKind::kUnmatched, "unknown_handle",
     "handle that this process never returned"},
    {Loss::kStaleHandle, LossKind::kUnmatched, "stale_handle",
     "handle of an operation that has ended"},
    {Loss::kAfterCompletion, LossKind::kUnmatched, "after_completion",
     "event of an operation that was already complete"},
    {Loss::kChannelOutOfRange, LossKind::kUnmatched, "channel_out_of_range",
     "channel number of 64 or more"},
    {Loss::kStopWithoutStart, LossKind::kUnmatched, "stop_without_start",
     "channel stop whose start was never announced"},
    {Loss::kChannelsMissing, LossKind::kTimestampRejected, "channels_missing",
     "collective complete with fewer channels than announced"},
    {Loss::kStopBeforeStart, LossKind::kTimestampRejected, "stop_before_start",
     "GPU stop not later than GPU start"},
    {Loss::kLongerThanCpuTime, LossKind::kTimestampRejected, "longer_than_cpu_time",
     "GPU duration exceeds the CPU time from call to delivery"},
    {Loss::kZeroTimestamp, LossKind::kTimestampRejected, "zero_timestamp",
     "GPU time stamp of zero"},
    {Loss::kClockMismatch, LossKind::kTimestampRejected, "clock_mismatch",
     "GPU times contradict those of earlier launches, by the CPU's clock"},
    {Loss::kOverlap, LossKind::kTimestampRejected, "overlap",
     "GPU times overlap those of another launch on the communicator"},
    {Loss::kRingOverrun, LossKind::kTimestampRejected, "ring_overrun",
     "NCCL's ring of time stamps may have been overrun"},
    {Loss::kDrift, LossKind::kTimestampRejected, "drift",
     "communicator untimed, because its time stamps were found to drift"},
    {Loss::kConcurrentRecording, LossKind::kTimestampRejected, "concurrent_recording",
     "two threads recorded launches at the same moment, and one launch stays untimed"},
    {Loss::kCommunicatorDrifting, LossKind::kDropped, "communicator_drifting",
     "operation not followed: its communicator is permanently untimed"},
    {Loss::kDisjointChannels, LossKind::kTimestampRejected, "disjoint_channels",
     "channels of one kernel did not run at the same time"},
    {Loss::kLaunchMemberUntimed, LossKind::kTimestampRejected, "launch_member_untimed",
     "shares the time of its launch with an operation that is rejected, incomplete, or not "
     "followed"},
    {Loss::kConcurrentStart, LossKind::kDropped, "concurrent_start",
     "operation not followed: another thread was starting one on its communicator at the same "
     "moment"},
    {Loss::kMissingTimestamp, LossKind::kTimestampRejected, "missing_timestamp",
     "channel stopped without a GPU stop time"},
    {Loss::kUnproven, LossKind::kTimestampRejected, "unproven",
     "time stamps of an unknown NCCL release, dropped before enough launches agreed with the CPU's "
     "clock"},
    {Loss::kPhaseMismatch, LossKind::kUnmatched, "phase_mismatch",
     "phases of a kernel that do not fit the times of its channels (plugins up to 1.7): left out"},
    {Loss::kNetworkFull, LossKind::kDropped, "network_full",
     "proxy operation whose steps were not timed: too many of its communicator had steps"},
    {Loss::kNetworkIncomplete, LossKind::kDropped, "network_incomplete",
     "proxy operation whose steps had not all ended, when it or its communicator did: not counted"},
    {Loss::kNetworkStepMismatch, LossKind::kUnmatched, "network_step_mismatch",
     "proxy operation whose steps do not follow each other: not counted"},
}};
static_assert(IsInOrder(kLosses));

constexpr const LossTraits& TraitsOf(Loss loss) { return RowIn(kLosses, loss); }

// Losses of operations that the plugin should have followed. A communicator that drifts is not
// followed by design, and an operation that finalize gives up was followed.
constexpr bool IsUnfollowed(Loss loss) {
  return TraitsOf(loss).kind == LossKind::kDropped && loss != Loss::kIncompleteAtFinalize &&
         loss != Loss::kCommunicatorDrifting;
}

}  // namespace nccl_exporter
