// SPDX-License-Identifier: Apache-2.0
// NodeSnapshot, the state of one node at one moment as the collector knows it: plain data.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collector/host_signals.h"
#include "collector/operation_counts.h"
#include "collector/segment_trouble.h"
#include "proto/code_table.h"
#include "proto/collective.h"
#include "proto/loss.h"
#include "proto/network_state.h"
#include "proto/timing_source.h"

namespace nccl_exporter::collector {

// Device and inode of a segment's file: two users may give two files one name. Valid as long as the
// collector follows the file, since it keeps it open.
struct FileKey {
  uint64_t device = 0;
  uint64_t inode = 0;

  auto operator<=>(const FileKey&) const = default;
};

struct InFlightOperation {
  Function function = Function::kOther;
  uint64_t sequence = 0;          // NCCL's sequence number of the function; 0 for Send and Recv
  int64_t start_realtime_ns = 0;  // when it was called, nanoseconds since the epoch
  uint64_t bytes = 0;
  int peer = -1;  // of Send and Recv
  uint32_t parts_announced = 0;
  uint32_t parts_done = 0;
};

// A timed operation of a launch.
struct RecentOperation {
  Function function = Function::kOther;
  uint8_t size_class = 0;
  uint64_t sequence = 0;   // NCCL's number of the function on its communicator
  uint64_t launch_ns = 0;  // kernel time of the whole launch
  uint64_t members = 1;    // operations of the launch, at least 1
};

// Collectives that a rank entered later than other ranks of its node, since the daemon started.
struct ArrivalCounts {
  uint64_t compared = 0;  // operations
  uint64_t last = 0;      // of those, the ones that it was the last to enter
  // Sum, against the first rank to enter; the operations of one launch share it.
  uint64_t lateness_ns = 0;

  bool operator==(const ArrivalCounts&) const = default;
  ArrivalCounts& operator+=(const ArrivalCounts& more) {
    compared += more.compared;
    last += more.last;
    lateness_ns += more.lateness_ns;
    return *this;
  }
};

// Kinds of operations whose kernel seconds are counted apart.
enum class Traffic : uint8_t { kCollective, kPointToPoint, kCount };
inline constexpr size_t kTrafficCount = kCountOf<Traffic>;
constexpr Traffic TrafficOf(Function function) {
  return TraitsOf(function).is_point_to_point ? Traffic::kPointToPoint : Traffic::kCollective;
}

// Timed network operations of one direction, and their waits.
struct NetworkDirectionCounts {
  std::array<uint64_t, kNetworkStateCount> wait_ns{};  // by NetworkState, as in the segment
  uint64_t bytes = 0;
  uint64_t operations = 0;

  // The wait in `state` as it is shown, or nothing if the direction has no such state. A receive
  // that is not posted waits for its own rank only, so that is time of its GPU.
  std::optional<uint64_t> WaitNs(NetworkDirection direction, NetworkState state) const {
    const bool is_send = direction == NetworkDirection::kSend;
    if (state == (is_send ? NetworkState::kFlush : NetworkState::kPeer)) return {};
    const uint64_t own_ns = wait_ns[static_cast<size_t>(state)];
    const bool takes_peer = !is_send && state == NetworkState::kGpu;
    return takes_peer ? own_ns + wait_ns[static_cast<size_t>(NetworkState::kPeer)] : own_ns;
  }
  bool operator==(const NetworkDirectionCounts&) const = default;
  NetworkDirectionCounts& operator+=(const NetworkDirectionCounts& more) {
    for (size_t i = 0; i < wait_ns.size(); ++i) wait_ns[i] += more.wait_ns[i];
    bytes += more.bytes;
    operations += more.operations;
    return *this;
  }
};

struct NetworkCounts {
  std::array<NetworkDirectionCounts, kNetworkDirectionCount> directions{};  // by NetworkDirection

  bool operator==(const NetworkCounts&) const = default;
  NetworkCounts& operator+=(const NetworkCounts& more) {
    for (size_t i = 0; i < directions.size(); ++i) directions[i] += more.directions[i];
    return *this;
  }
};

// Bus bytes of the operations that send, and of those that receive, by NetworkDirection:
// collectives do both. If the number of ranks is not known, the share (n-1)/n of the bus factor is
// taken as 1, its limit for many ranks: with BusShare() of 0 nearly all operations would have none.
struct NetworkBusBytes {
  std::array<uint64_t, kNetworkDirectionCount> all{};
  std::array<uint64_t, kNetworkDirectionCount> timed{};  // with timed network operations

  bool operator==(const NetworkBusBytes&) const = default;
  NetworkBusBytes& operator+=(const NetworkBusBytes& more) {
    for (size_t i = 0; i < all.size(); ++i) {
      all[i] += more.all[i];
      timed[i] += more.timed[i];
    }
    return *this;
  }
};

// Why a completed operation was not compared. Append only: each is a label value `reason`.
enum class Uncompared : uint8_t {
  kRingOverrun,
  kPartnerMissing,
  kTogether,
  kMismatch,
  kRankTwice,
  kNoCommonEnd,
  kCount
};
inline constexpr CodeTable<Uncompared> kUncomparedReasons{{
    {Uncompared::kRingOverrun, "ring_overrun", "overwritten before it was read"},
    {Uncompared::kPartnerMissing, "partner_missing",
     "another rank on this node does not have it: untimed, rejected, overwritten"},
    {Uncompared::kTogether, "together",
     "no kernel was shorter than another by more than ranks may leave apart"},
    {Uncompared::kMismatch, "mismatch", "the ranks' operations of that number cannot be the same"},
    {Uncompared::kRankTwice, "rank_twice",
     "a rank is present twice: communicators that cannot be distinguished"},
    {Uncompared::kNoCommonEnd, "no_common_end",
     "its ranks need not leave together: the function does not wait for all of them"},
}};
static_assert(IsInOrder(kUncomparedReasons));
using UncomparedOperations = std::array<uint64_t, kCountOf<Uncompared>>;

// The numbers of a rank in its job, as its launcher has numbered the ranks. Nothing where they are
// not proven.
struct RankNumbers {
  std::optional<uint32_t> global_rank;
  std::optional<uint32_t> local_rank;  // on its node
  uint32_t world_size = 0;             // of the job; 0: not known

  // Decimal; empty where they are not proven.
  std::string GlobalText() const { return global_rank ? std::to_string(*global_rank) : ""; }
  std::string LocalText() const { return local_rank ? std::to_string(*local_rank) : ""; }

  auto operator<=>(const RankNumbers&) const = default;
};

struct CommunicatorSnapshot {
  // Communicators of this process that have no slot of their own, summed; no identity.
  bool is_overflow = false;
  uint32_t slot = 0;        // place in the segment
  uint64_t generation = 0;  // of that place
  bool is_closed = false;   // finalized, served for the retention time

  bool has_identity = false;  // id and rank are known
  uint64_t id = 0;
  std::string name;    // given by the user, else empty
  uint64_t ranks = 0;  // 0: not known
  uint64_t rank = 0;
  uint64_t nodes = 0;  // 0: not known
  RankNumbers numbers;
  int api_version = 0;
  int nccl_version = 0;     // 22907 for 2.29.7; 0: unknown
  uint64_t event_mask = 0;  // events that NCCL was asked for: tests/gpu compares by them
  TimingSource timing_source = TimingSource::kNone;
  TimingReason timing_reason = TimingReason::kDefault;
  DriftCause drift_cause = DriftCause::kNone;
  std::optional<NetworkCounts> network;  // if the plugin times its network operations
  uint32_t network_share_ppm = 0;        // of the time in which it does, 1 to 1,000,000; else 0
  // With `network`, if the plugin counts what is timed (layout 1.6).
  std::optional<NetworkBusBytes> network_bus_bytes;
  // Launches that have yet to agree with the CPU's clock before kernel times are believed.
  uint64_t probation_launches = 0;
  int gpu_index = -1;  // -1: unknown
  std::string gpu_uuid;
  std::string pci_bus_id;
  // Network adapters nearest to the GPU, at most two with a comma between; empty: not known.
  std::string adapter;
  int64_t created_realtime_ns = 0;

  FunctionSnapshots functions;      // by Function
  uint64_t started_sequence = 0;    // collectives started
  uint64_t completed_sequence = 0;  // collectives known complete, at most started_sequence
  // Call of the oldest operation not known complete; 0: none.
  int64_t oldest_unfinished_realtime_ns = 0;
  bool completion_is_known = false;  // whether completed_sequence and in_flight mean anything
  std::vector<InFlightOperation> in_flight;  // oldest first
  // In flight or complete, which is not known: see layout::kUntimedFlag.
  uint64_t unseen_operations = 0;
  int64_t last_progress_realtime_ns = 0;  // 0: none yet
  // last_progress_realtime_ns by CLOCK_MONOTONIC, to compare processes: a clock that is set between
  // two readings changes times of day.
  int64_t last_progress_monotonic_ns = 0;
  // Where the node has other ranks whose kernel times are compared.
  std::optional<ArrivalCounts> arrivals;
  // Collectives that were timed since the snapshot before, in order; of communicators that may span
  // nodes. Of more than the ring holds, the latest.
  std::vector<RecentOperation> recent;
};

// 16 hexadecimal digits, as the labels nccl_job and comm have.
inline std::string HexText(uint64_t id) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text(16, '0');
  for (size_t i = text.size(); i-- > 0; id >>= 4) text[i] = kDigits[id & 0xf];
  return text;
}

// torchrun's run id where nobody has given one: many jobs have it.
inline constexpr std::string_view kDefaultRunId = "none";

// Another profiler plugin that gets its events through ours.
struct ChainedPlugin {
  std::string name;
  bool lacks_kernel_events = false;  // it asked for them, and they are not safe or not wanted
  bool is_over_budget = false;       // it gets no further events

  bool operator==(const ChainedPlugin&) const = default;
};

struct ProcessSnapshot {
  FileKey file;         // identifies the process
  std::string segment;  // file name, for messages; another user's file may have the same
  bool is_alive = false;
  // Its file is not locked any more, but its process is there, or its counters grow: it lives (see
  // SegmentError::kLockLost).
  bool has_lost_lock = false;
  // Stopped by a signal or a debugger; not known of a process in another PID namespace.
  std::optional<bool> is_stopped;
  uint64_t pid = 0;  // in its own PID namespace
  int seen_pid = 0;  // as the kernel reports it to the reader; 0: /proc does not show it
  uint64_t uid = 0;  // owner of the segment, in the reader's user namespace
  std::string host_name;
  std::string executable;
  std::string plugin_version;
  int64_t start_realtime_ns = 0;
  int64_t start_monotonic_ns = 0;  // by CLOCK_MONOTONIC of the reader
  // Environment variables, name and value.
  std::vector<std::pair<std::string, std::string>> identity;
  // Labels that the site gives to it, name and value: collector/labels.
  std::vector<std::pair<std::string, std::string>> site_labels;
  RankNumbers numbers;              // of the communicator that was made last
  std::optional<HostSignals> host;  // of a living process that was looked at
  // Id of the first communicator of more than one rank; 0: there is none, or not known. In a
  // NodeSnapshot that of the job, where processes are known to be of one.
  uint64_t first_communicator = 0;
  std::array<uint64_t, kLossCount> losses{};
  std::optional<ChainedPlugin> chained;
  uint64_t chained_callbacks = 0;  // of events; by samples
  uint64_t chained_ns = 0;         // their time; by the same samples
  std::vector<CommunicatorSnapshot> communicators;
  // Communicators of the process that `communicators` lacks, at least: see kMaxCommunicators.
  uint64_t unread_in_use = 0;
  uint64_t unread_finalized = 0;

  // Whether it has ended, or is stopped.
  bool IsHalted() const { return !is_alive || is_stopped.value_or(false); }

  // Value of an identity variable, or empty.
  const std::string& Identity(std::string_view name) const {
    static const std::string kEmpty;
    for (const auto& [key, value] : identity) {
      if (key == name) return value;
    }
    return kEmpty;
  }

  // Name of its job that the environment gives: of the workload manager, else of the injection into
  // pods, else of torchrun. Empty if there is none: blanks are no name.
  std::string GivenJob() const {
    for (const char* name : {"SLURM_JOB_ID", "NCCL_EXPORTER_JOB", "TORCHELASTIC_RUN_ID"}) {
      const std::string& job = Identity(name);
      const bool is_blank = job.find_first_not_of(" \t\n\v\f\r") == std::string::npos;
      if (!is_blank && job != kDefaultRunId) return job;
    }
    return "";
  }

  // The job that the process is of, among those of its user and namespace: by its name, else by
  // the first communicator. Empty if none is known.
  std::string JobName() const {
    const std::string given = GivenJob();
    return given.empty() && first_communicator != 0 ? HexText(first_communicator) : given;
  }

  // The node that it runs on. In Kubernetes the host name is the pod's.
  const std::string& NodeName() const {
    const std::string& node = Identity("NODE_NAME");
    return node.empty() ? host_name : node;
  }
};

// Identity of a communicator. The id alone is not enough: it is a hash, and two jobs may have the
// same.
struct CommunicatorKey {
  uint64_t id = 0;
  uint64_t ranks = 0;
  uint64_t uid = 0;
  std::string job;         // ProcessSnapshot::JobName()
  std::string name_space;  // of Kubernetes, if known

  auto operator<=>(const CommunicatorKey&) const = default;
};

// With GivenJob() for `job` it is known before jobs are joined.
inline CommunicatorKey CommunicatorKeyOf(const ProcessSnapshot& process,
                                         const CommunicatorSnapshot& communicator,
                                         std::string job) {
  return {.id = communicator.id,
          .ranks = communicator.ranks,
          .uid = process.uid,
          .job = std::move(job),
          .name_space = process.Identity("POD_NAMESPACE")};
}
inline CommunicatorKey CommunicatorKeyOf(const ProcessSnapshot& process,
                                         const CommunicatorSnapshot& communicator) {
  return CommunicatorKeyOf(process, communicator, process.JobName());
}

// Whether a path of --segment.dir is a pattern for private directories: "*" is the user's number.
inline bool IsPrivatePattern(std::string_view path) { return path.ends_with("-*"); }

// Segments in the directories by state.
struct SegmentCounts {
  uint64_t live = 0;
  uint64_t starting = 0;  // version word still 0
  uint64_t exited = 0;    // writer gone, served until the retention time is over
  uint64_t unusable = 0;  // see SegmentError
};

// Segments followed, of one user and of all: far more than processes on a node, and few enough to
// hold their descriptors open.
inline constexpr size_t kMaxSegmentsPerUser = 1024;
inline constexpr size_t kMaxSegments = 2048;

// Communicators in one snapshot, at kCommunicatorBytes: 8 processes of the plugin's default, 256
// slots and the overflow slot, and half as many more. The limit bounds the memory of a snapshot (24
// MiB) and the time of reading it (40 us each), also where a user fills a directory with forged
// segments. Finalized communicators are left out first, then those of dead processes. The last
// counts of dead communicators that are kept have a limit of the same number.
inline constexpr uint64_t kMaxCommunicators = 3072;

// Memory that a communicator is expected to take: two functions and some operations in flight. One
// that takes more has the room of several: with three or four functions that of two.
inline constexpr uint64_t kCommunicatorBytes = 8 * 1024;

// Slots of one user that one snapshot looks at, whatever is in them, at 1 us each: 8 processes with
// as many as the plugin can have, 4095. Beyond it: SegmentError::kTooManySegments.
inline constexpr uint64_t kMaxSlotsPerUser = 32768;

// Communicators whose arrivals are compared at most, since reading the ring of each costs a system
// call at every interval: 3 % of a core for so many.
inline constexpr size_t kMaxRings = 1024;

// kMaxRings for one user: 8 ranks of 64 communicators. Half of all, so that two users never take
// each other's.
inline constexpr size_t kMaxRingsPerUser = kMaxRings / 2;

// Live communicators of one user that are not compared with others, since there is no room.
struct UncomparedCommunicators {
  std::optional<uint64_t> uid;  // none: users beyond the first kMaxTroubledUsers together
  uint64_t count = 0;
};

struct NodeSnapshot {
  int64_t taken_realtime_ns = 0;
  std::vector<ProcessSnapshot> processes;  // by start time, then file name
  SegmentCounts segments;
  std::array<uint64_t, kCountOf<SegmentError>> segment_errors{};  // since the daemon started
  std::vector<SegmentTrouble> segment_troubles;                   // errors by user
  UncomparedOperations uncompared_operations{};  // of each rank, since the daemon started
  std::vector<UncomparedCommunicators> uncompared_communicators;  // of users who have some
  uint64_t arrival_matching_ns = 0;  // CPU time spent on ArrivalCounts, since the daemon started
};

}  // namespace nccl_exporter::collector
