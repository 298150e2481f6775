// SPDX-License-Identifier: Apache-2.0
// Every metric family that the daemon serves, one row each: the interface that dashboards, rules
// and habits hang on. HELP lines, the table in docs/metrics.md and the order of a scrape follow
// from this list.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "proto/code_table.h"

namespace nccl_exporter {

enum class MetricType : uint8_t { kCounter, kGauge, kHistogram, kInfo };
inline constexpr std::array<CodeRow<MetricType>, 4> kMetricTypes{{
    {MetricType::kCounter, "counter",
     "grows, and begins at 0 again with its process or communicator"},
    {MetricType::kGauge, "gauge", "the value at the moment of the scrape"},
    {MetricType::kHistogram, "histogram", "classic and native buckets"},
    {MetricType::kInfo, "info", "the value 1, with facts as labels"},
}};
static_assert(IsInOrder(kMetricTypes));

// The labels that every series of a family carries, besides its own.
enum class LabelScope : uint8_t {
  kCommunicator,  // comm, comm_name, rank, gpu, uid, and those known of the job
  kProcess,       // pid, uid, and those known of the job
  kDaemon         // none
};

// The part of a scrape that a family is in, and the value of collect[] that asks for it.
enum class MetricPart : uint8_t { kAlerts, kDetail };
inline constexpr std::array<CodeRow<MetricPart>, 2> kMetricParts{{
    {MetricPart::kAlerts, "alerts", "what rules read: few series, kept to the last at the limit"},
    {MetricPart::kDetail, "detail", "everything else, for dashboards"},
}};
static_assert(IsInOrder(kMetricParts));

enum class Metric : uint8_t {
  kApiCalls,
  kCollectiveOperations,
  kCollectiveBytes,
  kCollectiveTimedOperations,
  kCollectiveBusySeconds,
  kCollectiveBusBytes,
  kCollectiveDuration,
  kCollectiveBusBandwidth,
  kSendOperations,
  kSendBytes,
  kSendTimedOperations,
  kSendBusySeconds,
  kSendDuration,
  kRecvOperations,
  kRecvBytes,
  kRecvTimedOperations,
  kRecvBusySeconds,
  kRecvDuration,
  kNetworkWaitSeconds,
  kNetworkTimedBytes,
  kNetworkTimedOperations,
  kArrivalLateness,
  kLastArrivals,
  kComparedOperations,
  kRankKernelSeconds,
  kRankPointToPointKernelSeconds,
  kRankPointToPoint,
  kRankTimedOperations,
  kRankSteps,
  kRankStepWait,
  kNodeLargeBusBytes,
  kNodeLargeBusySeconds,
  kNodeLargeTimedOperations,
  kNodeNetworkBusBytes,
  kNodeNetworkTimedBusBytes,
  kNodeProgress,
  kStalledCommunicatorRanks,
  kStalledProgress,
  kStalledProcessProgress,
  kStalledStartedSequence,
  kStalledCompletedSequence,
  kStalledInFlight,
  kStalledOldestInFlightStart,
  kStartedSequence,
  kCompletedSequence,
  kInFlight,
  kOldestInFlightStart,
  kUnseenOperations,
  kLastProgress,
  kCommunicatorRanks,
  kCommunicatorInfo,
  kRankInfo,
  kProcessHalted,
  kProcessAlive,
  kProcessStopped,
  kProcessKernelSeconds,
  kProcessPointToPoint,
  kProcessUnserved,
  kProcessCpuWait,
  kProcessThrottled,
  kProcessMemoryStall,
  kProcessMajorFaults,
  kProcessInvoluntarySwitches,
  kProcessProgressCpu,
  kProcessVerbsDevices,
  kProcessEnvironmentInfo,
  kProcessChainedCallbacks,
  kProcessChainedSeconds,
  kOperationsUnfollowed,
  kOperationsRejected,
  kEventsDropped,
  kEventsUnmatched,
  kTimestampsRejected,
  kBuildInfo,
  kSegments,
  kSegmentReadErrors,
  kUserSegmentErrors,
  kUserSegmentsUnusable,
  kUnreadCommunicators,
  kUncomparedOperations,
  kUserUncomparedCommunicators,
  kArrivalMatching,
  kFindings,
  kUnmeasuredProcesses,
  kSeriesDropped,
  kScrapeDuration,
  kRequestsRefused,
  kLogLinesDropped,
  kExtensionFaults,
  kSnapshotTimestamp,
  kProcessCpu,
  kProcessResidentMemory,
  kProcessVirtualMemory,
  kProcessOpenDescriptors,
  kProcessMaxDescriptors,
  kProcessStartTime,
  kProcessThreads,
  kLimit,
  kLimitBytes,
  kLimitSeconds,
  kCount
};
inline constexpr size_t kMetricCount = kCountOf<Metric>;

struct MetricRow {
  Metric id;
  std::string_view name;  // complete; counters end in _total
  MetricType type;
  std::string_view unit;  // base unit that the name carries, or empty
  LabelScope scope;
  std::string_view labels;  // own labels, separated by commas
  std::string_view help;
  MetricPart part = MetricPart::kDetail;
};

inline constexpr std::array<MetricRow, kMetricCount> kMetrics{{
    {Metric::kApiCalls, "nccl_api_calls_total", MetricType::kCounter, "", LabelScope::kCommunicator,
     "function",
     "Calls of NCCL's functions, Send and Recv included (profiler API v5 and later). Some releases "
     "announce a call but no operation."},
    {Metric::kCollectiveOperations, "nccl_collective_operations_total", MetricType::kCounter, "",
     LabelScope::kCommunicator, "collective,size",
     "Collectives submitted to the GPU, graph replays included; exact, even if only some are "
     "timed."},
    {Metric::kCollectiveBytes, "nccl_collective_bytes_total", MetricType::kCounter, "bytes",
     LabelScope::kCommunicator, "collective,size",
     "Message bytes of the operations, as nccl-tests defines the message size."},
    {Metric::kCollectiveTimedOperations, "nccl_collective_timed_operations_total",
     MetricType::kCounter, "", LabelScope::kCommunicator, "collective,size",
     "Operations with a measured duration."},
    {Metric::kCollectiveBusySeconds, "nccl_collective_busy_seconds_total", MetricType::kCounter,
     "seconds", LabelScope::kCommunicator, "collective,size",
     "Sum of the measured durations; operations of one launch share its time by their bytes."},
    {Metric::kCollectiveBusBytes, "nccl_collective_bus_bytes_total", MetricType::kCounter, "bytes",
     LabelScope::kCommunicator, "collective,size",
     "Message bytes of the timed operations times the bus factor of nccl-tests; divided by busy "
     "seconds, the bus bandwidth."},
    {Metric::kCollectiveDuration, "nccl_collective_duration_seconds", MetricType::kHistogram,
     "seconds", LabelScope::kCommunicator, "collective",
     "Measured duration, waiting for late ranks included."},
    {Metric::kCollectiveBusBandwidth, "nccl_collective_bus_bandwidth_bytes_per_second",
     MetricType::kHistogram, "bytes_per_second", LabelScope::kCommunicator, "collective",
     "Bus bandwidth of timed operations of 1 MiB and more that were the only one of their launch."},
    {Metric::kSendOperations, "nccl_p2p_send_operations_total", MetricType::kCounter, "",
     LabelScope::kCommunicator, "", "Sends submitted to the GPU, graph replays included."},
    {Metric::kSendBytes, "nccl_p2p_send_bytes_total", MetricType::kCounter, "bytes",
     LabelScope::kCommunicator, "", "Bytes of the sends."},
    {Metric::kSendTimedOperations, "nccl_p2p_send_timed_operations_total", MetricType::kCounter, "",
     LabelScope::kCommunicator, "", "Sends with a measured duration."},
    {Metric::kSendBusySeconds, "nccl_p2p_send_busy_seconds_total", MetricType::kCounter, "seconds",
     LabelScope::kCommunicator, "",
     "Sum of the measured durations of sends; sends of one launch share its time by their bytes."},
    {Metric::kSendDuration, "nccl_p2p_send_duration_seconds", MetricType::kHistogram, "seconds",
     LabelScope::kCommunicator, "",
     "Measured duration of sends, waiting for the receiver included."},
    {Metric::kRecvOperations, "nccl_p2p_recv_operations_total", MetricType::kCounter, "",
     LabelScope::kCommunicator, "", "Receives submitted to the GPU, graph replays included."},
    {Metric::kRecvBytes, "nccl_p2p_recv_bytes_total", MetricType::kCounter, "bytes",
     LabelScope::kCommunicator, "", "Bytes of the receives."},
    {Metric::kRecvTimedOperations, "nccl_p2p_recv_timed_operations_total", MetricType::kCounter, "",
     LabelScope::kCommunicator, "", "Receives with a measured duration."},
    {Metric::kRecvBusySeconds, "nccl_p2p_recv_busy_seconds_total", MetricType::kCounter, "seconds",
     LabelScope::kCommunicator, "",
     "Sum of the measured durations of receives; receives of one launch share its time by their "
     "bytes."},
    {Metric::kRecvDuration, "nccl_p2p_recv_duration_seconds", MetricType::kHistogram, "seconds",
     LabelScope::kCommunicator, "",
     "Measured duration of receives, waiting for the sender included."},
    {Metric::kNetworkWaitSeconds, "nccl_network_wait_seconds_total", MetricType::kCounter,
     "seconds", LabelScope::kCommunicator, "direction,state",
     "Time of timed network operations by what their oldest step waits for: gpu (the rank's own "
     "GPU), peer (the receiver's credit), network (adapter, wire, for receives the sender), "
     "flush; operations of several channels add up."},
    {Metric::kNetworkTimedBytes, "nccl_network_timed_bytes_total", MetricType::kCounter, "bytes",
     LabelScope::kCommunicator, "direction", "Bytes of the timed network operations."},
    {Metric::kNetworkTimedOperations, "nccl_network_timed_operations_total", MetricType::kCounter,
     "", LabelScope::kCommunicator, "direction",
     "Network operations whose steps were all timed: one channel of an operation, to or from one "
     "peer."},
    {Metric::kArrivalLateness, "nccl_collective_arrival_lateness_seconds_total",
     MetricType::kCounter, "seconds", LabelScope::kCommunicator, "",
     "Longest kernel on the node minus the rank's own, where the rank is late, summed over "
     "compared operations; operations of one launch share it.",
     MetricPart::kAlerts},
    {Metric::kLastArrivals, "nccl_collective_last_arrivals_total", MetricType::kCounter, "",
     LabelScope::kCommunicator, "", "Compared operations that the rank entered last on its node.",
     MetricPart::kAlerts},
    {Metric::kComparedOperations, "nccl_collective_compared_operations_total", MetricType::kCounter,
     "", LabelScope::kCommunicator, "",
     "Collectives that wait for all ranks, for which all ranks of the communicator on the node "
     "have kernel times, and in which some rank is late. On the lowest rank of the node; absent "
     "for the only one.",
     MetricPart::kAlerts},
    {Metric::kRankKernelSeconds, "nccl_rank_kernel_seconds_total", MetricType::kCounter, "seconds",
     LabelScope::kCommunicator, "",
     "Measured durations of timed operations; absent while nothing is timed.", MetricPart::kAlerts},
    {Metric::kRankPointToPointKernelSeconds, "nccl_rank_p2p_kernel_seconds_total",
     MetricType::kCounter, "seconds", LabelScope::kCommunicator, "",
     "The part of nccl_rank_kernel_seconds_total in sends and receives; absent while none of them "
     "is timed.",
     MetricPart::kAlerts},
    {Metric::kRankPointToPoint, "nccl_rank_p2p_operations_total", MetricType::kCounter, "",
     LabelScope::kCommunicator, "",
     "Sends and receives submitted to the GPU, graph replays included; absent before the first.",
     MetricPart::kAlerts},
    {Metric::kRankTimedOperations, "nccl_rank_timed_operations_total", MetricType::kCounter, "",
     LabelScope::kCommunicator, "", "Collectives with a measured duration, of all sizes.",
     MetricPart::kAlerts},
    {Metric::kRankSteps, "nccl_rank_steps_total", MetricType::kCounter, "",
     LabelScope::kCommunicator, "",
     "Operations of the rarest collective and size that occurs at least every 30 s, on the lowest "
     "rank of the node; absent for communicators on one node, and in the first minute.",
     MetricPart::kAlerts},
    {Metric::kRankStepWait, "nccl_rank_step_wait_seconds_total", MetricType::kCounter, "seconds",
     LabelScope::kCommunicator, "collective,size",
     "The recent mean of the longest launch in a step, times the steps, of each regular collective "
     "and size; at most four, those that moved the most bytes. Absent for communicators on one "
     "node, and in the first minute.",
     MetricPart::kAlerts},
    {Metric::kNodeLargeBusBytes, "nccl_node_large_bus_bytes_total", MetricType::kCounter, "bytes",
     LabelScope::kCommunicator, "collective,size",
     "Bus bytes of the timed operations of one collective and size: that of 16 MiB and more which "
     "has moved the most bytes on this node. Of each interval those of the rank that waited least. "
     "On the lowest rank of the node.",
     MetricPart::kAlerts},
    {Metric::kNodeLargeBusySeconds, "nccl_node_large_busy_seconds_total", MetricType::kCounter,
     "seconds", LabelScope::kCommunicator, "collective,size",
     "Measured durations of the same operations.", MetricPart::kAlerts},
    {Metric::kNodeLargeTimedOperations, "nccl_node_large_timed_operations_total",
     MetricType::kCounter, "", LabelScope::kCommunicator, "collective,size",
     "Number of the same operations.", MetricPart::kAlerts},
    {Metric::kNodeNetworkBusBytes, "nccl_node_network_bus_bytes_total", MetricType::kCounter,
     "bytes", LabelScope::kCommunicator, "direction",
     "Bus bytes of all operations of the communicator's ranks on this node. A rank adds its "
     "own once one of the direction was timed. On the lowest rank of the node."},
    {Metric::kNodeNetworkTimedBusBytes, "nccl_node_network_timed_bus_bytes_total",
     MetricType::kCounter, "bytes", LabelScope::kCommunicator, "direction",
     "The part of nccl_node_network_bus_bytes_total whose network operations were timed: divides "
     "the timed bytes to get all bytes."},
    {Metric::kNodeProgress, "nccl_node_progress_total", MetricType::kCounter, "",
     LabelScope::kCommunicator, "",
     "Starts and completions of operations on the communicator, sends and receives included, by "
     "all of its ranks on the node. On the lowest rank of the node.",
     MetricPart::kAlerts},
    {Metric::kStalledCommunicatorRanks, "nccl_stalled_communicator_ranks", MetricType::kGauge, "",
     LabelScope::kCommunicator, "gpu_uuid, hostname, pid, timing_source",
     "Ranks in the communicator while nothing has started or completed on it for 5 s on this rank, "
     "or the process is halted; else absent. 0 if the profiler API does not report it.",
     MetricPart::kAlerts},
    {Metric::kStalledProgress, "nccl_stalled_progress", MetricType::kGauge, "",
     LabelScope::kCommunicator, "",
     "Starts and completions of the rank at the same times: twice the operations that were "
     "started, less those in flight where that is known.",
     MetricPart::kAlerts},
    {Metric::kStalledProcessProgress, "nccl_stalled_process_progress", MetricType::kGauge, "",
     LabelScope::kCommunicator, "",
     "The same, and one for each, of all communicators of the process, where an operation is in "
     "flight or completion cannot be seen; else absent.",
     MetricPart::kAlerts},
    {Metric::kStalledStartedSequence, "nccl_stalled_started_sequence", MetricType::kGauge, "",
     LabelScope::kCommunicator, "", "nccl_collective_started_sequence, at the same times.",
     MetricPart::kAlerts},
    {Metric::kStalledCompletedSequence, "nccl_stalled_completed_sequence", MetricType::kGauge, "",
     LabelScope::kCommunicator, "", "nccl_collective_completed_sequence, at the same times.",
     MetricPart::kAlerts},
    {Metric::kStalledInFlight, "nccl_stalled_operations_in_flight", MetricType::kGauge, "",
     LabelScope::kCommunicator, "", "nccl_operations_in_flight, at the same times.",
     MetricPart::kAlerts},
    {Metric::kStalledOldestInFlightStart, "nccl_stalled_oldest_in_flight_start_timestamp_seconds",
     MetricType::kGauge, "seconds", LabelScope::kCommunicator, "function",
     "nccl_operations_oldest_in_flight_start_timestamp_seconds, at the same times.",
     MetricPart::kAlerts},
    {Metric::kStartedSequence, "nccl_collective_started_sequence", MetricType::kGauge, "",
     LabelScope::kCommunicator, "",
     "Collectives started on the communicator since it was created."},
    {Metric::kCompletedSequence, "nccl_collective_completed_sequence", MetricType::kGauge, "",
     LabelScope::kCommunicator, "",
     "Collectives known to be complete on the communicator; absent where completion cannot be "
     "seen."},
    {Metric::kInFlight, "nccl_operations_in_flight", MetricType::kGauge, "",
     LabelScope::kCommunicator, "",
     "Operations, sends and receives included, that were started and are not complete; absent "
     "where completion cannot be seen."},
    {Metric::kOldestInFlightStart, "nccl_operations_oldest_in_flight_start_timestamp_seconds",
     MetricType::kGauge, "seconds", LabelScope::kCommunicator, "function",
     "Start of the operation that is longest in flight; absent when idle."},
    {Metric::kUnseenOperations, "nccl_operations_unseen", MetricType::kGauge, "",
     LabelScope::kCommunicator, "",
     "Operations of unknown state, running or complete, because their completion is not observed: "
     "run by copy engine, or replayed over symmetric windows. Absent if there are none; at most "
     "512."},
    {Metric::kLastProgress, "nccl_operations_last_progress_timestamp_seconds", MetricType::kGauge,
     "seconds", LabelScope::kCommunicator, "",
     "Last start or completion of an operation on the communicator; absent before the first."},
    {Metric::kCommunicatorRanks, "nccl_communicator_ranks", MetricType::kGauge, "",
     LabelScope::kCommunicator, "",
     "Ranks in the communicator, on its lowest rank of the node; absent if the profiler API does "
     "not report it (v1 to v3).",
     MetricPart::kAlerts},
    {Metric::kCommunicatorInfo, "nccl_communicator_info", MetricType::kInfo, "",
     LabelScope::kCommunicator, "nnodes,nccl_version,api_version",
     "The communicator as this rank sees it."},
    {Metric::kRankInfo, "nccl_rank_info", MetricType::kInfo, "", LabelScope::kCommunicator,
     "gpu_uuid,pci_bus_id,adapter,local_rank,hostname,pid,timing_source,timing_reason,"
     "plugin_version,...",
     "The rank: GPU, process, source of its durations, and further identity labels. Joins with "
     "DCGM by gpu_uuid, and with node_exporter by adapter.",
     MetricPart::kAlerts},
    {Metric::kProcessHalted, "nccl_process_halted", MetricType::kGauge, "", LabelScope::kProcess,
     "", "1 after the end of the process, or while a signal or a debugger stops it; else 0.",
     MetricPart::kAlerts},
    {Metric::kProcessAlive, "nccl_process_alive", MetricType::kGauge, "", LabelScope::kProcess, "",
     "1 while the process lives; 0 after its end, while its last state is still served."},
    {Metric::kProcessStopped, "nccl_process_stopped", MetricType::kGauge, "", LabelScope::kProcess,
     "",
     "1 while the process is stopped by a signal or a debugger; absent if the daemon does not see "
     "it in /proc."},
    {Metric::kProcessKernelSeconds, "nccl_process_kernel_seconds_total", MetricType::kCounter,
     "seconds", LabelScope::kProcess, "",
     "Sum of nccl_rank_kernel_seconds_total over the communicators of the process, those that are "
     "gone included; absent before anything is timed."},
    {Metric::kProcessPointToPoint, "nccl_process_p2p_operations_total", MetricType::kCounter, "",
     LabelScope::kProcess, "",
     "Sends and receives on all communicators of the process, those that are gone included; absent "
     "before the first.",
     MetricPart::kAlerts},
    {Metric::kProcessUnserved, "nccl_process_unserved_communicators", MetricType::kGauge, "",
     LabelScope::kProcess, "",
     "Communicators in use of the process that have no series of their own, because there is no "
     "room for them: see the limits. Absent while 0.",
     MetricPart::kAlerts},
    // Each is absent where the daemon does not see it: docs/why.md.
    {Metric::kProcessCpuWait, "nccl_process_cpu_wait_seconds_total", MetricType::kCounter,
     "seconds", LabelScope::kProcess, "",
     "Time ready to run without a CPU: of four busy threads, the one that waited longest.",
     MetricPart::kAlerts},
    {Metric::kProcessThrottled, "nccl_process_throttled_seconds_total", MetricType::kCounter,
     "seconds", LabelScope::kProcess, "",
     "Time in which the cgroup's quota of CPU time held it back, all CPUs together.",
     MetricPart::kAlerts},
    {Metric::kProcessMemoryStall, "nccl_process_memory_stall_seconds_total", MetricType::kCounter,
     "seconds", LabelScope::kProcess, "",
     "Time in which some task of the cgroup waited for memory (PSI, cgroup v2).",
     MetricPart::kAlerts},
    {Metric::kProcessMajorFaults, "nccl_process_major_faults_total", MetricType::kCounter, "",
     LabelScope::kProcess, "", "Page faults that waited for a disk.", MetricPart::kAlerts},
    {Metric::kProcessInvoluntarySwitches, "nccl_process_involuntary_switches_total",
     MetricType::kCounter, "", LabelScope::kProcess, "",
     "Times that the main thread lost its CPU to another."},
    {Metric::kProcessProgressCpu, "nccl_process_progress_cpu_seconds_total", MetricType::kCounter,
     "seconds", LabelScope::kProcess, "",
     "CPU time of NCCL's progress threads; needs NCCL_SET_THREAD_NAME=1 in the job."},
    {Metric::kProcessVerbsDevices, "nccl_process_verbs_devices", MetricType::kGauge, "",
     LabelScope::kProcess, "",
     "Adapters for InfiniBand, RoCE or EFA held open; absent on nodes without a linked one.",
     MetricPart::kAlerts},
    {Metric::kProcessEnvironmentInfo, "nccl_process_environment_info", MetricType::kInfo, "",
     LabelScope::kProcess, "hostname,variables",
     "Number and hash of the NCCL_ variables in the environment, and those that find room: "
     "NCCL_*=2~1a2b3c4d NCCL_ALGO=Ring NCCL_DEBUG=INFO."},
    {Metric::kProcessChainedCallbacks, "nccl_process_chained_callbacks_total", MetricType::kCounter,
     "", LabelScope::kProcess, "",
     "Callbacks of a chained plugin, but for init and finalize: 64 for each that was timed. Absent "
     "while 0."},
    {Metric::kProcessChainedSeconds, "nccl_process_chained_seconds_total", MetricType::kCounter,
     "seconds", LabelScope::kProcess, "",
     "Time of these callbacks, by every 64th. Absent while there are none."},
    {Metric::kOperationsUnfollowed, "nccl_process_operations_unfollowed_total",
     MetricType::kCounter, "", LabelScope::kProcess, "",
     "Sum of nccl_process_events_dropped_total over all reasons but incomplete_at_finalize and "
     "communicator_drifting; absent while 0.",
     MetricPart::kAlerts},
    {Metric::kOperationsRejected, "nccl_process_operations_rejected_total", MetricType::kCounter,
     "", LabelScope::kProcess, "",
     "Sum of nccl_process_timestamps_rejected_total over all reasons; absent while 0.",
     MetricPart::kAlerts},
    {Metric::kEventsDropped, "nccl_process_events_dropped_total", MetricType::kCounter, "",
     LabelScope::kProcess, "reason",
     "Communicators or operations that the plugin could not follow, by cause."},
    {Metric::kEventsUnmatched, "nccl_process_events_unmatched_total", MetricType::kCounter, "",
     LabelScope::kProcess, "reason",
     "Profiler events that fit no live operation, by cause; ignored."},
    {Metric::kTimestampsRejected, "nccl_process_timestamps_rejected_total", MetricType::kCounter,
     "", LabelScope::kProcess, "reason",
     "Operations left untimed because their time stamps were implausible, by cause."},
    {Metric::kBuildInfo, "nccl_exporter_build_info", MetricType::kInfo, "", LabelScope::kDaemon,
     "version,compiler,revision",
     "The daemon that answers. revision is its commit, where it was built with one.",
     MetricPart::kAlerts},
    {Metric::kSegments, "nccl_exporter_segments", MetricType::kGauge, "", LabelScope::kDaemon,
     "state", "Segments in the watched directories, by state."},
    {Metric::kSegmentReadErrors, "nccl_exporter_segment_errors_total", MetricType::kCounter, "",
     LabelScope::kDaemon, "reason", "Reads of a segment that failed, by reason."},
    {Metric::kUserSegmentErrors, "nccl_exporter_user_segment_errors_total", MetricType::kCounter,
     "", LabelScope::kDaemon, "uid,reason",
     "Reads of a segment that failed, by owner of the file and reason, for users with errors; "
     "uid=\"other\": users beyond the first 32.",
     MetricPart::kAlerts},
    {Metric::kUserSegmentsUnusable, "nccl_exporter_user_segments_unusable", MetricType::kGauge, "",
     LabelScope::kDaemon, "uid,reason",
     "Files and directories that cannot be used now, by owner; 1 if there is no room for more "
     "files of the user.",
     MetricPart::kAlerts},
    {Metric::kUnreadCommunicators, "nccl_exporter_unread_communicators", MetricType::kGauge, "",
     LabelScope::kDaemon, "state",
     "Communicators that the daemon has no room for, by state: in_use, finalized, or of an ended "
     "process."},
    {Metric::kUncomparedOperations, "nccl_exporter_uncompared_operations_total",
     MetricType::kCounter, "", LabelScope::kDaemon, "reason",
     "Timed collectives that were not compared, although the rank has partners on the node, by "
     "reason."},
    {Metric::kUserUncomparedCommunicators, "nccl_exporter_user_uncompared_communicators",
     MetricType::kGauge, "", LabelScope::kDaemon, "uid",
     "Live communicators that are not compared because there is no room, by owner, for users who "
     "have some; uid=\"other\": users beyond the first 32."},
    {Metric::kArrivalMatching, "nccl_exporter_arrival_matching_seconds_total", MetricType::kCounter,
     "seconds", LabelScope::kDaemon, "",
     "CPU time spent on reading completed operations and comparing arrivals."},
    {Metric::kFindings, "nccl_exporter_findings", MetricType::kGauge, "", LabelScope::kDaemon,
     "kind,severity",
     "Findings that the daemon shows, by kind and severity; 0 if there are none. As of its last "
     "judgement, one every 5 s."},
    {Metric::kUnmeasuredProcesses, "nccl_exporter_unmeasured_processes", MetricType::kGauge, "",
     LabelScope::kDaemon, "",
     "Processes with NCCL and a GPU that have no segment: without the plugin, or before their "
     "first communicator. Absent where the daemon may not look at all processes of the node."},
    {Metric::kSeriesDropped, "nccl_exporter_series_dropped_total", MetricType::kCounter, "",
     LabelScope::kDaemon, "uid,reason",
     "Series above the limit that scrapes lack, by user and reason; uid=\"other\": users beyond "
     "the first 32.",
     MetricPart::kAlerts},
    {Metric::kScrapeDuration, "nccl_exporter_scrape_duration_seconds", MetricType::kHistogram,
     "seconds", LabelScope::kDaemon, "", "Time to answer a scrape."},
    {Metric::kRequestsRefused, "nccl_exporter_requests_refused_total", MetricType::kCounter, "",
     LabelScope::kDaemon, "reason", "Requests refused because of a limit, by limit."},
    {Metric::kLogLinesDropped, "nccl_exporter_log_lines_dropped_total", MetricType::kCounter, "",
     LabelScope::kDaemon, "", "Lines of the daemon's log that nobody took in time."},
    {Metric::kExtensionFaults, "nccl_exporter_extension_faults_total", MetricType::kCounter, "",
     LabelScope::kDaemon, "",
     "Answers of extensions that were late, refused or missing. Absent without "
     "--extension.socket."},
    {Metric::kSnapshotTimestamp, "nccl_exporter_snapshot_timestamp_seconds", MetricType::kGauge,
     "seconds", LabelScope::kDaemon, "",
     "When the segments were read for this answer, seconds since the epoch."},
    {Metric::kProcessCpu, "process_cpu_seconds_total", MetricType::kCounter, "seconds",
     LabelScope::kDaemon, "", "CPU time of the daemon, user and system."},
    {Metric::kProcessResidentMemory, "process_resident_memory_bytes", MetricType::kGauge, "bytes",
     LabelScope::kDaemon, "", "Resident memory of the daemon."},
    {Metric::kProcessVirtualMemory, "process_virtual_memory_bytes", MetricType::kGauge, "bytes",
     LabelScope::kDaemon, "", "Virtual memory of the daemon."},
    {Metric::kProcessOpenDescriptors, "process_open_fds", MetricType::kGauge, "",
     LabelScope::kDaemon, "", "Open file descriptors of the daemon."},
    {Metric::kProcessMaxDescriptors, "process_max_fds", MetricType::kGauge, "", LabelScope::kDaemon,
     "", "Limit of open file descriptors."},
    {Metric::kProcessStartTime, "process_start_time_seconds", MetricType::kGauge, "seconds",
     LabelScope::kDaemon, "", "Start of the daemon, seconds since the epoch."},
    {Metric::kProcessThreads, "process_threads", MetricType::kGauge, "", LabelScope::kDaemon, "",
     "Threads of the daemon."},
    {Metric::kLimit, "nccl_exporter_limit", MetricType::kGauge, "", LabelScope::kDaemon, "limit",
     "Limits of the daemon: the largest number of each kind. `series` limits those of "
     "communicators and processes; the daemon's own series are not included."},
    {Metric::kLimitBytes, "nccl_exporter_limit_bytes", MetricType::kGauge, "bytes",
     LabelScope::kDaemon, "limit",
     "Limits of the daemon in bytes: the largest size that it accepts or serves."},
    {Metric::kLimitSeconds, "nccl_exporter_limit_seconds", MetricType::kGauge, "seconds",
     LabelScope::kDaemon, "limit",
     "Limits of the daemon in seconds: the longest time that it allows."},
}};
static_assert(IsInOrder(kMetrics));

constexpr const MetricRow& RowOf(Metric metric) { return RowIn(kMetrics, metric); }

// Series that one daemon serves at most; beyond it detail is lost first (snapshot_families.h). Text
// takes some 205 bytes per series, so 48 concurrent scrapes without gzip hold 200 MB, and the chart
// allows 256 MiB. The alert series of more than 1,000 communicators fit.
inline constexpr int kSeriesLimit = 20000;

}  // namespace nccl_exporter
