// SPDX-License-Identifier: Apache-2.0
// Finding, something that is wrong on this node: who causes it, who suffers from it, since when,
// and at what cost. Plain data that refers to nothing else, so that it can be kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collector/node_snapshot.h"
#include "proto/code_table.h"

namespace nccl_exporter::exporter {

// Append only: names are part of the API (docs/api.md).
enum class FindingKind : uint8_t {
  kHangCulprit,
  kHangOtherCall,
  kHangNobodyBehind,
  kHangElsewhere,
  kLateRank,
  kProcessKilled,
  kSegmentsUnusable,
  kOperationsNotFollowed,
  kNotJudged,
  kRanksUnmeasured,
  kAbandoned,
  kSocketFallback,
  kCount
};
inline constexpr CodeTable<FindingKind> kFindingKinds{{
    {FindingKind::kHangCulprit, "hang_culprit", "ranks wait for a rank of this node"},
    {FindingKind::kHangOtherCall, "hang_other_call", "a rank is in another call than the others"},
    {FindingKind::kHangNobodyBehind, "hang_nobody_behind",
     "all ranks have entered the operation, and it does not end"},
    {FindingKind::kHangElsewhere, "hang_elsewhere",
     "ranks wait, and those that they wait for are not on this node"},
    {FindingKind::kLateRank, "late_rank", "the others wait for a rank again and again"},
    {FindingKind::kProcessKilled, "process_killed",
     "a process has ended without finalizing its communicators"},
    {FindingKind::kSegmentsUnusable, "segments_unusable",
     "files or directories of segments cannot be used"},
    {FindingKind::kOperationsNotFollowed, "operations_not_followed",
     "operations are counted and not followed, by no design"},
    {FindingKind::kNotJudged, "not_judged", "late ranks of a job cannot be seen"},
    {FindingKind::kRanksUnmeasured, "ranks_unmeasured",
     "ranks that must be on this node are not seen"},
    {FindingKind::kAbandoned, "abandoned",
     "operations of a communicator do not end, and their processes go on in others"},
    {FindingKind::kSocketFallback, "socket_fallback",
     "NCCL uses sockets between nodes, beside an adapter for verbs"},
}};
static_assert(IsInOrder(kFindingKinds));

// Whether the ranks of a job wait in an operation that does not end.
constexpr bool IsHang(FindingKind kind) { return kind <= FindingKind::kHangElsewhere; }

// Severities of the alerts, the worst last: findings are ordered by the value.
enum class Severity : uint8_t { kInfo, kWarning, kCritical, kCount };
inline constexpr CodeTable<Severity> kSeverities{{
    {Severity::kInfo, "info", "worth knowing"},
    {Severity::kWarning, "warning", "costs time, or may become critical"},
    {Severity::kCritical, "critical", "the job does not go on"},
}};
static_assert(IsInOrder(kSeverities));

// State of a rank in a finding. Append only.
enum class Standing : uint8_t {
  kWaits,
  kMissingCall,
  kOtherCall,
  kNoPartner,
  kStopped,
  kKilled,
  kMissing,
  kLate,
  kCount
};
inline constexpr CodeTable<Standing> kStandings{{
    {Standing::kWaits, "waits", "has entered the operation"},
    {Standing::kMissingCall, "missing_call", "has not entered the operation"},
    {Standing::kOtherCall, "other_call", "has entered another operation"},
    {Standing::kNoPartner, "no_partner", "has no send or receive in flight"},
    {Standing::kStopped, "stopped", "its process is stopped"},
    {Standing::kKilled, "killed", "its process has ended without finalizing"},
    {Standing::kMissing, "missing", "is not seen on this node, which has all ranks"},
    {Standing::kLate, "late", "arrives after the others"},
}};
static_assert(IsInOrder(kStandings));

// Texts are valid UTF-8 of at most 64 bytes without control characters, whatever a process wrote:
// words.h makes them. Times are nanoseconds since the epoch by the node's clock.
struct FoundRank {
  Standing standing = Standing::kWaits;
  uint64_t rank = 0;        // in the communicator
  std::string global_rank;  // in the job; empty: not known
  int gpu_index = -1;       // -1: not known
  std::string gpu_uuid;
  uint64_t pid = 0;  // in its own PID namespace; 0: not known
  std::string host_name;
  std::string pod;
  // Collectives that another rank of this node has started and this one has not.
  uint64_t behind = 0;
  std::string operation;          // in flight, as "AllGather #325"; empty: none
  int64_t since_realtime_ns = 0;  // of the operation, the wait or the end; 0: not known
};

// Ranks that a finding lists at most; the others are counted. A node has more ranks of one job only
// if a user forges them.
inline constexpr size_t kMostFoundRanks = 64;

struct Finding {
  FindingKind kind = FindingKind::kHangCulprit;
  Severity severity = Severity::kInfo;

  // Nothing where a finding is about processes or files.
  std::optional<collector::CommunicatorKey> communicator;
  std::string communicator_name;  // given by the user, else empty
  uint64_t uid = 0;               // whose job, or whose files
  std::string job;                // as people name it: "job 4712"
  // Labels nccl_job and namespace of a finding about processes. Others have them in `communicator`.
  std::string job_name;
  std::string name_space;

  // At most kMostFoundRanks each, and how many more there are.
  std::vector<FoundRank> culprits;  // the one that is surest first; may be empty
  uint64_t more_culprits = 0;
  std::vector<FoundRank> waiting;  // by rank
  uint64_t more_waiting = 0;
  // The first moment of what still lasts, by the node's clock; 0: not known.
  int64_t since_realtime_ns = 0;

  // Sentences. Names of other processes in them are valid UTF-8 without control characters.
  std::string headline;  // the whole finding in one sentence
  std::string cost;      // "7 of 8 GPUs wait", "10.6 % of the time"; empty: not known
  // Name and value, with unit.
  std::vector<std::pair<std::string, std::string>> evidence;
  std::string next;     // advice in one sentence
  std::string runbook;  // name of its alert, which is that of its page in docs/runbooks; or empty

  // Stays while the finding lasts: FindingIds. Empty: no judge has seen it yet.
  std::string id = {};
  // Name, with its unit, and number: the cost and the evidence for programs.
  std::vector<std::pair<std::string, double>> numbers = {};
  // Things to save before the job is killed, and commands for that, which any shell may run.
  std::vector<std::pair<std::string, std::string>> collect = {};
  // Labels of the site for the job, name and value.
  std::vector<std::pair<std::string, std::string>> labels = {};
};

}  // namespace nccl_exporter::exporter
