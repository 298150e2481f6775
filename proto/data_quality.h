// SPDX-License-Identifier: Apache-2.0
// Every cause by which the plugin gives something up, and every source and reason of timing. A cause is one row: its
// place in the segment's array of counters, its metric family and its label value `reason`. Append only.
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
  kJudgedAtOnce,
  kCommunicatorDrifting,
  kDisjointChannels,
  kCompanion,
  kConcurrentStart,
  kStopStampMissing,
  kUnproven,
  kPhaseMismatch,
  kCount
};
inline constexpr int kLossCount = static_cast<int>(Loss::kCount);

struct LossTraits {
  Loss id;
  LossKind kind;
  std::string_view reason;   // label value
  std::string_view meaning;  // for the table in docs/metrics.md and for `nccl-exporter dump`
};

inline constexpr std::array<LossTraits, kLossCount> kLosses{{
    {Loss::kNoFreeCommunicatorSlot, LossKind::kDropped, "no_free_slot",
     "communicator without a slot of its own: counted in the overflow slot, untimed"},
    {Loss::kReservationFailed, LossKind::kDropped, "reservation_failed",
     "no room in the segment's file system for a communicator's counters"},
    {Loss::kInFlightFull, LossKind::kDropped, "in_flight_full",
     "operation not followed: too many, or launches of them, in flight on its communicator"},
    {Loss::kOperationAbandoned, LossKind::kDropped, "abandoned",
     "operation given up before it was seen to complete: later ones had completed"},
    {Loss::kIncompleteAtFinalize, LossKind::kDropped, "incomplete_at_finalize",
     "operation not complete when its communicator was finalized"},
    {Loss::kUnknownContext, LossKind::kUnmatched, "unknown_context",
     "event of a communicator that this process does not know"},
    {Loss::kForeignProcess, LossKind::kUnmatched, "foreign_process", "proxy event on behalf of another process (PXN)"},
    {Loss::kUnknownHandle, LossKind::kUnmatched, "unknown_handle", "handle that this process never gave out"},
    {Loss::kStaleHandle, LossKind::kUnmatched, "stale_handle", "handle of an operation that is gone"},
    {Loss::kAfterCompletion, LossKind::kUnmatched, "after_completion",
     "event of an operation that was already complete"},
    {Loss::kChannelOutOfRange, LossKind::kUnmatched, "channel_out_of_range", "channel number of 64 or more"},
    {Loss::kStopWithoutStart, LossKind::kUnmatched, "stop_without_start",
     "channel stop whose start was never announced"},
    {Loss::kChannelsMissing, LossKind::kTimestampRejected, "channels_missing",
     "collective complete with fewer channels than announced"},
    {Loss::kStopBeforeStart, LossKind::kTimestampRejected, "stop_before_start", "GPU stop not later than GPU start"},
    {Loss::kLongerThanCpuTime, LossKind::kTimestampRejected, "longer_than_cpu_time",
     "GPU duration exceeds the CPU time from call to delivery"},
    {Loss::kZeroTimestamp, LossKind::kTimestampRejected, "zero_timestamp", "GPU time stamp of zero"},
    {Loss::kClockMismatch, LossKind::kTimestampRejected, "clock_mismatch",
     "GPU times contradict those of earlier launches, by the CPU's clock"},
    {Loss::kOverlap, LossKind::kTimestampRejected, "overlap",
     "GPU times overlap those of another launch on the communicator"},
    {Loss::kRingOverrun, LossKind::kTimestampRejected, "ring_overrun",
     "NCCL's ring of time stamps may have been overrun"},
    {Loss::kDrift, LossKind::kTimestampRejected, "drift",
     "communicator untimed, since its time stamps were found to drift"},
    {Loss::kJudgedAtOnce, LossKind::kTimestampRejected, "concurrent_recording",
     "two launches were recorded at the same moment, and one was let go"},
    {Loss::kCommunicatorDrifting, LossKind::kDropped, "communicator_drifting",
     "operation not followed: its communicator is untimed for good"},
    {Loss::kDisjointChannels, LossKind::kTimestampRejected, "disjoint_channels",
     "channels of one kernel did not run at the same time"},
    {Loss::kCompanion, LossKind::kTimestampRejected, "launch_member_untimed",
     "shares the time of its launch with an operation that has none: rejected, incomplete, or not followed"},
    {Loss::kConcurrentStart, LossKind::kDropped, "concurrent_start",
     "operation not followed: another thread was starting one on its communicator at the same moment"},
    {Loss::kStopStampMissing, LossKind::kTimestampRejected, "missing_timestamp", "channel stopped without a GPU stop time"},
    {Loss::kUnproven, LossKind::kTimestampRejected, "unproven",
     "NCCL release not known, and its time stamps did not prove themselves before they had to be dropped"},
    {Loss::kPhaseMismatch, LossKind::kUnmatched, "phase_mismatch",
     "phases of a kernel that do not fit the times of its channels: left out"},
}};
static_assert(IsInOrder(kLosses));

constexpr const LossTraits& TraitsOf(Loss loss) { return RowIn(kLosses, loss); }

// Where durations come from, per communicator (label `timing_source`). Append only, as all that follow.
enum class TimingSource : uint8_t { kNone, kKernel, kKernelCpu, kProxy, kCount };
inline constexpr CodeTable<TimingSource> kTimingSources{{
    {TimingSource::kNone, "none", "counts and bytes only"},
    {TimingSource::kKernel, "kernel", "GPU clock, by NCCL's KernelCh events (2.27 and later)"},
    {TimingSource::kKernelCpu, "kernel_cpu", "CPU clock at delivery of KernelCh events, which carry no time in 2.26"},
    {TimingSource::kProxy, "proxy",
     "CPU clock, from the first proxy operation taken up to the last one done: network operations only"},
}};
static_assert(IsInOrder(kTimingSources));
constexpr std::string_view NameOf(TimingSource source) { return RowIn(kTimingSources, source).name; }

// Why that source was chosen (label `timing_reason`); chosen once per process and NCCL library by the event policy.
enum class TimingReason : uint8_t {
  kDefault,
  kConfigured,
  kApiTooOld,
  kReleaseUnsound,
  kReleaseUnknown,
  kSharedMemoryLow,
  kOverflow,
  kDrift,
  kAllgathervEnabled,
  kCpusLow,
  kSamplingFrozen,
  kMaskOverride,
  kCount
};
inline constexpr CodeTable<TimingReason> kTimingReasons{{
    {TimingReason::kDefault, "default", "kernel timing is sound on this release"},
    {TimingReason::kConfigured, "configured", "NCCL_EXPORTER_KERNEL_TIMING is on or off"},
    {TimingReason::kApiTooOld, "api_too_old",
     "profiler API v1 and v2 have no kernel events; those of 2.26 have no time"},
    {TimingReason::kReleaseUnsound, "release_unsound",
     "2.31.0 to 2.31.2: 4 to 13 % cost, drifting time stamps; 2.27: no large AlltoAll"},
    {TimingReason::kReleaseUnknown, "release_unknown", "the NCCL version could not be found out"},
    {TimingReason::kSharedMemoryLow, "shared_memory_low", "/dev/shm cannot hold what NCCL needs for kernel timing"},
    {TimingReason::kOverflow, "overflow", "communicator in the overflow slot"},
    {TimingReason::kDrift, "drift", "the communicator's time stamps were found to drift"},
    {TimingReason::kAllgathervEnabled, "allgatherv_enabled",
     "2.29 and later, without NCCL_ALLGATHERV_ENABLE=0: kernel timing could hang the job"},
    {TimingReason::kCpusLow, "cpus_low",
     "fewer than two CPUs per local rank, for NCCL's progress thread and the training thread"},
    {TimingReason::kSamplingFrozen, "sampling_frozen",
     "windows of kernel timing ended outside of a window; the sampling reason says why"},
    {TimingReason::kMaskOverride, "mask_override",
     "NCCL's event mask was changed by someone else, as by NCCL's RAS client"},
}};
static_assert(IsInOrder(kTimingReasons));
constexpr std::string_view NameOf(TimingReason reason) { return RowIn(kTimingReasons, reason).name; }

// What ended the kernel timing of a communicator, for `nccl-exporter dump` and the daemon's API.
enum class DriftCause : uint8_t {
  kNone,
  kMessageToSelf,
  kEmptyParts,
  kReplayAfterEagerCall,
  kContradiction,
  kMaskOverride,
  kEventsOff,
  kCount
};
inline constexpr CodeTable<DriftCause> kDriftCauses{{
    {DriftCause::kNone, "none", "kernel timing has not ended"},
    {DriftCause::kMessageToSelf, "message_to_self", "a send to or receive from oneself, as in every AlltoAll"},
    {DriftCause::kEmptyParts, "empty_parts", "a message that is cut into more parts than have data"},
    {DriftCause::kReplayAfterEagerCall, "replay_after_eager_call",
     "a captured graph that was replayed after an eager call"},
    {DriftCause::kContradiction, "contradiction", "GPU times that contradict each other or the CPU's clock"},
    {DriftCause::kMaskOverride, "mask_override", "NCCL's event mask, which someone else has changed"},
    {DriftCause::kEventsOff, "events_off",
     "collectives that were not announced, because someone else had switched their events off"},
}};
static_assert(IsInOrder(kDriftCauses));

// Whether all operations are timed or those in windows of time (label `sampling`).
enum class SamplingState : uint8_t { kNone, kLearning, kWindows, kFrozen, kCount };
inline constexpr CodeTable<SamplingState> kSamplingStates{{
    {SamplingState::kNone, "none", "what the timing source says, all the time"},
    {SamplingState::kLearning, "learning", "all operations are timed, until it is clear what the process does"},
    {SamplingState::kWindows, "windows", "operations are timed in windows"},
    {SamplingState::kFrozen, "frozen", "no windows, or none any more; the sampling reason says why"},
}};
static_assert(IsInOrder(kSamplingStates));
constexpr std::string_view NameOf(SamplingState state) { return RowIn(kSamplingStates, state).name; }

// Why (label `sampling_reason`).
enum class SamplingReason : uint8_t {
  kDefault,
  kConfigured,
  kRelease,
  kPointToPoint,
  kGraph,
  kTooManyLibraries,
  kOverflow,
  kThreads,
  kCount
};
inline constexpr CodeTable<SamplingReason> kSamplingReasons{{
    {SamplingReason::kDefault, "default", "windows as they were asked for"},
    {SamplingReason::kConfigured, "configured", "NCCL_EXPORTER_SAMPLING asks for no windows"},
    {SamplingReason::kRelease, "release", "NCCL other than 2.28 to 2.30, or no kernel timing"},
    {SamplingReason::kPointToPoint, "point_to_point", "the process sends and receives"},
    {SamplingReason::kGraph, "graph", "the process captures graphs"},
    {SamplingReason::kTooManyLibraries, "too_many_libraries",
     "more copies of libnccl in the process than can be followed"},
    {SamplingReason::kOverflow, "overflow", "communicators without a slot of their own"},
    {SamplingReason::kThreads, "threads", "threads call NCCL at the same time"},
}};
static_assert(IsInOrder(kSamplingReasons));
constexpr std::string_view NameOf(SamplingReason reason) { return RowIn(kSamplingReasons, reason).name; }

// A duty of 1.
inline constexpr uint32_t kWholeDutyPpm = 1'000'000;

}  // namespace nccl_exporter
