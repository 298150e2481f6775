// SPDX-License-Identifier: Apache-2.0
// Finds the rank that enters a collective last: matches the operations of the ranks of one
// communicator that run on this node, and compares when their kernels started.
//
// Compared are starts of kernels, by the GPUs' clocks, and nothing else. The call says when the
// host got there, which may be far ahead of its GPU, and hosts are not brought together by a
// collective as kernels are: their lateness would count again at each operation. Lateness of
// kernels adds up to the time that the others wait.
//
// An operation is compared if every rank of the communicator on this node has it, and if some rank
// is later than the first one. A rank is late by the middle of what its distance to the first may
// be, if it is later, and last if it is later than all others. That a rank is later is proven or
// estimated:
//
// - Proven: it is later whatever the clocks show within their bounds (GpuClockBounds,
//   ClockDifferences). A rank that is late by the same time at every operation, while hosts are far
//   ahead of their GPUs, cannot be proven late. The same stamps come from a rank whose clock is
//   ahead by that time and whose operations all end earlier by it.
// - Estimated: two witnesses say it, which have nothing in common, and nothing that is proven
//   contradicts them. The first one is the clocks' distance by the fastest deliveries of both GPUs
//   (FastestDeliveries), which take about the same time on one node. The second one are the
//   durations: the ranks leave an operation that waits for all at about the same time, so that a
//   kernel that is shorter began later. One of both may be wrong: deliveries of one rank that are
//   always slow, or an operation that always ends later on one rank. Only if both are, by more than
//   kUnequalDeliveriesNs and kUnequalStopsNs and in the same direction, is a rank named that is not
//   late.
#pragma once

#include <compare>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "collector/arrivals/clock_differences.h"
#include "collector/arrivals/completion_ring.h"
#include "collector/arrivals/fastest_deliveries.h"
#include "collector/arrivals/gpu_clock_bounds.h"
#include "collector/node_snapshot.h"

namespace nccl_exporter::collector {

// An operation waits for so long for the other ranks to have it: the plugin may take a second to
// report that it is over.
inline constexpr uint64_t kPartnerPatienceNs = 2'000'000'000;

// So many operations of one communicator wait at a time: 20 times what is under way at 10,000 a
// second. More means that some rank has none of them.
inline constexpr size_t kMaxWaitingOperations = 4096;

// The fastest deliveries of two GPUs of a node differ by less than this: a progress thread polls
// every few microseconds where it has a core; on two overloaded cores 25 us were seen.
inline constexpr int64_t kUnequalDeliveriesNs = 40'000;

// Ranks leave an operation that waits for all within this, and this part of the shortest kernel,
// which has the time of the transfer: its last pieces arrive one after the other.
inline constexpr int64_t kUnequalStopsNs = 10'000;
inline constexpr int64_t kUnequalStopsDivisor = 8;

struct LocalRank {
  CommunicatorKey communicator;
  uint64_t rank = 0;
  // UUID of the GPU whose clock the kernels read; empty: not known, so a clock of its own.
  std::string gpu_uuid;
  bool has_kernel_times = false;
  bool call_is_bound = false;  // no kernel starts before its operation's call_ns (API v5 and later)
};

// Not thread-safe.
class ArrivalMatcher {
 public:
  class Member;

  ArrivalMatcher();
  ~ArrivalMatcher();

  // The rank stays until it is removed. What is waiting in its communicator then will not be
  // compared.
  Member* Add(const LocalRank& rank);
  void Remove(Member* member);
  // Time stamps that drift make a rank untimed for good.
  void SetHasKernelTimes(Member* member, bool has_kernel_times);

  // Whether there is another rank to compare it with, and times to compare.
  static bool IsComparable(const Member* member);
  static const ArrivalCounts& CountsOf(const Member* member);
  // Uncertainty of the rank's distance to the first one to enter, at the latest operation.
  static const ArrivalUncertainty& UncertaintyOf(const Member* member);

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
  struct Clock;
  struct Distance;

  void Count(Uncompared cause, uint64_t operations) {
    uncompared_[static_cast<size_t>(cause)] += operations;
  }
  void GiveUp(Group& group, Uncompared cause);
  void Judge(Group& group);
  void PairClocks(Group& group);
  void Compare(Group& group, const std::vector<Arrival>& arrivals);
  static size_t PlaceOfFirst(const Group& group, const std::vector<Arrival>& arrivals,
                             std::optional<int64_t> transfer_ns);

  using ClockKey = std::pair<uint64_t, std::string>;  // uid, GPU
  std::map<ClockKey, std::weak_ptr<Clock>> clocks_;
  uint64_t clock_numbers_ = 0;
  ClockDifferences differences_;
  std::map<CommunicatorKey, Group> groups_;
  std::list<Member> members_;
  std::vector<Distance> distances_;  // kept from operation to operation
  UncomparedOperations uncompared_{};
};

}  // namespace nccl_exporter::collector
