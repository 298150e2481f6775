// SPDX-License-Identifier: Apache-2.0
// Which rank enters a collective last: matches the operations of the ranks of one communicator that run on this node,
// and compares when their kernels started.
//
// Compared are starts of kernels, by the GPUs' clocks, and nothing else. The call says when the host got there, which
// may be far ahead of its GPU, and hosts are not brought together by a collective as kernels are: their lateness would
// count again at each operation. Lateness of kernels adds up to the time that the others wait.
//
// An operation is compared if every rank of the communicator on this node has it, and if some rank is certainly later
// than the first one, whatever the clocks show within their bounds (GpuClockBounds, ClockDifferences). A rank is late
// by the middle of what its distance to the first may be, if it is certainly later, and last if it is certainly later
// than all others.
#pragma once

#include <compare>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "collector/clock_differences.h"
#include "collector/completion_ring.h"
#include "collector/gpu_clock_bounds.h"
#include "collector/node_snapshot.h"

namespace nccl_exporter {

// An operation waits for so long for the other ranks to have it: the plugin may take a second to tell that it is over.
inline constexpr uint64_t kPartnerPatienceNs = 2'000'000'000;

// So many operations of one communicator wait at a time: 20 times what is under way at 10,000 a second. More means that
// some rank has none of them.
inline constexpr size_t kMaxWaitingOperations = 4096;

// What tells communicators apart. The id alone does not: it is a hash, and two jobs may have the same.
struct CommunicatorKey {
  uint64_t uid = 0;
  std::string job;         // of the workload manager, if known
  std::string name_space;  // of Kubernetes, if known
  uint64_t id = 0;
  uint64_t ranks = 0;

  auto operator<=>(const CommunicatorKey&) const = default;
};

struct LocalRank {
  CommunicatorKey communicator;
  uint64_t rank = 0;
  std::string gpu_uuid;  // of the clock that its kernels read; empty: not known, so a clock of its own
  bool has_kernel_times = false;
  bool call_is_bound = false;  // no kernel starts before its operation's call_ns (API v5 and later)
};

// Not thread-safe.
class ArrivalMatcher {
 public:
  class Member;

  ArrivalMatcher();
  ~ArrivalMatcher();

  // The rank stays until it is removed. What is waiting in its communicator then will not be compared.
  Member* Add(const LocalRank& rank);
  void Remove(Member* member);
  // Time stamps that drift make a rank untimed for good.
  void SetHasKernelTimes(Member* member, bool has_kernel_times);

  // Whether there is another rank to compare it with, and times to compare.
  static bool IsComparable(const Member* member);
  static const ArrivalCounts& CountsOf(const Member* member);

  // In the order in which they were completed on that rank.
  void Take(Member* member, const CompletedOperation& operation, uint64_t now_ns);
  void CountLost(const Member* member, uint64_t operations);
  // Gives up on operations that have waited for too long.
  void Expire(uint64_t now_ns);

  // Operations of a rank that were completed and not compared, by cause.
  const UncomparedOperations& uncompared() const { return uncompared_; }

 private:
  struct Arrival;
  struct Waiting;
  struct Group;

  void Count(Uncompared cause, uint64_t operations) { uncompared_[static_cast<size_t>(cause)] += operations; }
  void GiveUp(Group& group, Uncompared cause);
  void Compare(Group& group, const std::vector<Arrival>& arrivals);

  using ClockKey = std::pair<uint64_t, std::string>;  // uid, GPU
  std::map<ClockKey, std::weak_ptr<GpuClockBounds>> clocks_;
  std::map<CommunicatorKey, Group> groups_;
  std::list<Member> members_;
  UncomparedOperations uncompared_{};
};

}  // namespace nccl_exporter
