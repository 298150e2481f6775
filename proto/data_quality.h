// SPDX-License-Identifier: Apache-2.0
// Every cause by which the plugin gives something up, and every source and reason of timing. A cause is one row: its
// place in the segment's array of counters, its metric family and its label value `reason`. Append only.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace nccl_exporter {

// The three families of data-quality counters.
enum class LossKind : uint8_t {
  kDropped,            // nccl_rank_events_dropped_total: not recorded, for want of room
  kUnmatched,          // nccl_rank_events_unmatched_total: an event that fits no live operation; ignored
  kTimestampRejected,  // nccl_rank_timestamps_rejected_total: an operation's times, or those of its launch, were
                       // implausible; it counts as untimed, and here once
};

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
  LossKind kind;
  std::string_view reason;   // label value
  std::string_view meaning;  // for the README table and for `nccl-exporter dump`
};

inline constexpr std::array<LossTraits, kLossCount> kLosses{{
    {LossKind::kDropped, "no_free_slot",
     "communicator without a slot of its own: counted in the overflow slot, untimed"},
    {LossKind::kDropped, "reservation_failed", "no room in the segment's file system for a communicator's counters"},
    {LossKind::kDropped, "in_flight_full",
     "operation not followed: too many, or launches of them, in flight on its communicator"},
    {LossKind::kDropped, "abandoned", "operation given up before it was seen to complete: later ones had completed"},
    {LossKind::kDropped, "incomplete_at_finalize", "operation not complete when its communicator was finalized"},
    {LossKind::kUnmatched, "unknown_context", "event of a communicator that this process does not know"},
    {LossKind::kUnmatched, "foreign_process", "proxy event on behalf of another process (PXN)"},
    {LossKind::kUnmatched, "unknown_handle", "handle that this process never gave out"},
    {LossKind::kUnmatched, "stale_handle", "handle of an operation that is gone"},
    {LossKind::kUnmatched, "after_completion", "event of an operation that was already complete"},
    {LossKind::kUnmatched, "channel_out_of_range", "channel number of 64 or more"},
    {LossKind::kUnmatched, "stop_without_start", "channel stop whose start was never announced"},
    {LossKind::kTimestampRejected, "channels_missing", "collective complete with fewer channels than announced"},
    {LossKind::kTimestampRejected, "stop_before_start", "GPU stop not later than GPU start"},
    {LossKind::kTimestampRejected, "longer_than_cpu_time", "GPU duration exceeds the CPU time from call to delivery"},
    {LossKind::kTimestampRejected, "zero", "GPU time stamp of zero"},
    {LossKind::kTimestampRejected, "clock_mismatch",
     "GPU times contradict those of earlier launches, by the CPU's clock"},
    {LossKind::kTimestampRejected, "overlap", "GPU times overlap those of another launch on the communicator"},
    {LossKind::kTimestampRejected, "ring_overrun", "NCCL's ring of time stamps may have been overrun"},
    {LossKind::kTimestampRejected, "drift", "communicator untimed, since its time stamps were found to drift"},
    {LossKind::kTimestampRejected, "judged_at_once",
     "two launches were recorded at the same moment, and one was let go"},
    {LossKind::kDropped, "communicator_drifting", "operation not followed: its communicator is untimed for good"},
    {LossKind::kTimestampRejected, "disjoint_channels", "channels of one kernel did not run at the same time"},
    {LossKind::kTimestampRejected, "companion",
     "shares the time of its launch with an operation that has none: rejected, incomplete, or not followed"},
    {LossKind::kDropped, "concurrent_start",
     "operation not followed: another thread was starting one on its communicator at the same moment"},
    {LossKind::kTimestampRejected, "stop_missing", "channel stopped without a GPU stop time"},
    {LossKind::kTimestampRejected, "unproven",
     "NCCL release not known, and its time stamps did not prove themselves before they had to be dropped"},
    {LossKind::kUnmatched, "phase_mismatch", "phases of a kernel that do not fit the times of its channels: left out"},
}};

constexpr const LossTraits& TraitsOf(Loss loss) { return kLosses[static_cast<uint8_t>(loss)]; }

// Where durations come from, per communicator (label `timing_source`).
enum class TimingSource : uint8_t {
  kNone = 0,       // counts and bytes only
  kKernel = 1,     // GPU clock, by NCCL's KernelCh events (2.27 and later)
  kKernelCpu = 2,  // CPU clock at delivery of KernelCh events, which carry no time in 2.26
  kProxy = 3,      // CPU clock, from the first proxy operation taken up to the last one done: network operations only
  kCount
};
inline constexpr std::array<std::string_view, static_cast<size_t>(TimingSource::kCount)> kTimingSources{
    "none", "kernel", "kernel_cpu", "proxy"};

// Why that source was chosen (label `timing_reason`); chosen once per process and NCCL library by the event policy.
enum class TimingReason : uint8_t {
  kDefault = 0,            // kernel timing is sound on this release
  kConfigured = 1,         // NCCL_EXPORTER_KERNEL_TIMING=on or off
  kApiTooOld = 2,          // profiler API v1 and v2 have no kernel events; 2.26's carry no time
  kReleaseUnsound = 3,     // 2.31.0 to 2.31.2: 4 to 13 % cost, drifting time stamps; 2.27: no large AlltoAll
  kReleaseUnknown = 4,     // the NCCL version could not be found out
  kSharedMemoryLow = 5,    // /dev/shm cannot hold what NCCL needs for kernel timing
  kOverflow = 6,           // communicator in the overflow slot
  kDrift = 7,              // its time stamps were found to drift
  kAllgathervEnabled = 8,  // 2.29 and later, without NCCL_ALLGATHERV_ENABLE=0: kernel timing could hang the job
  kCpusLow = 9,            // fewer than two CPUs per local rank for NCCL's progress thread and the training thread
  kSamplingFrozen = 10,    // windows of kernel timing ended outside of a window: see sampling_reason
  kMaskOverride = 11,      // NCCL's event mask was changed by someone else, as by NCCL's RAS client
  kCount
};
inline constexpr std::array<std::string_view, static_cast<size_t>(TimingReason::kCount)> kTimingReasons{
    "default",  "configured", "api_too_old",        "release_unsound", "release_unknown", "shared_memory_low",
    "overflow", "drift",      "allgatherv_enabled", "cpus_low",        "sampling_frozen", "mask_override"};

// What ended the kernel timing of a communicator, for `nccl-exporter dump` and the daemon's API. Append only.
enum class DriftCause : uint8_t {
  kNone = 0,
  kMessageToSelf = 1,
  kEmptyParts = 2,
  kReplayAfterEagerCall = 3,
  kContradiction = 4,
  kMaskOverride = 5,
  kEventsOff = 6,
  kCount
};

struct DriftTraits {
  std::string_view name;
  std::string_view meaning;
};
inline constexpr std::array<DriftTraits, static_cast<size_t>(DriftCause::kCount)> kDriftCauses{{
    {"", ""},
    {"message_to_self", "a send to or receive from oneself, as in every AlltoAll"},
    {"empty_parts", "a message that is cut into more parts than have data"},
    {"replay_after_eager_call", "a captured graph that was replayed after an eager call"},
    {"contradiction", "GPU times that contradict each other or the CPU's clock"},
    {"mask_override", "NCCL's event mask, which someone else has changed"},
    {"events_off", "collectives that were not announced, because someone else had switched their events off"},
}};

// Whether all operations are timed or those in windows of time (label `sampling`).
enum class SamplingState : uint8_t {
  kNone = 0,      // what the timing source says, all the time
  kLearning = 1,  // all operations are timed, until it is clear what the process does
  kWindows = 2,   // operations are timed in windows
  kFrozen = 3,    // no windows (any more): see the reason
  kCount
};
inline constexpr std::array<std::string_view, static_cast<size_t>(SamplingState::kCount)> kSamplingStates{
    "none", "learning", "windows", "frozen"};

// Why (label `sampling_reason`).
enum class SamplingReason : uint8_t {
  kDefault = 0,
  kConfigured = 1,        // NCCL_EXPORTER_SAMPLING
  kRelease = 2,           // other than 2.28 to 2.30, or without kernel timing
  kPointToPoint = 3,      // the process sends and receives
  kGraph = 4,             // the process captures graphs
  kTooManyLibraries = 5,  // copies of libnccl in the process
  kOverflow = 6,          // communicators without a slot of their own
  kThreads = 7,           // threads call NCCL at the same time
  kCount
};
inline constexpr std::array<std::string_view, static_cast<size_t>(SamplingReason::kCount)> kSamplingReasons{
    "default", "configured", "release", "point_to_point", "graph", "too_many_libraries", "overflow", "threads"};

// A duty of 1.
inline constexpr uint32_t kWholeDutyPpm = 1'000'000;

}  // namespace nccl_exporter
