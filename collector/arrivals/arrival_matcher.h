// SPDX-License-Identifier: Apache-2.0
// Finds the rank that enters a collective last: matches the operations of the ranks of one
// communicator that run on this node, and compares how long their kernels took.
//
// The ranks leave an operation that waits for all at about the same time. So a kernel that is
// shorter began later, and a rank is late by the duration of the longest kernel minus its own. It
// is late if this exceeds the time by which ranks may leave apart (kUnequalStopsNs), and last if it
// is later than each of the others by more than that. No two clocks are compared: each duration is
// of one GPU's clock. Calls say nothing: the host may be far ahead of its GPU, and a collective
// does not bring hosts together.
#pragma once

#include <list>
#include <map>
#include <unordered_map>
#include <vector>

#include "collector/arrivals/completion_ring.h"
#include "collector/node_snapshot.h"

namespace nccl_exporter::collector {

// An operation waits for so long for the other ranks to have it: the plugin may take a second to
// report that it is over.
inline constexpr uint64_t kPartnerPatienceNs = 2'000'000'000;

// So many operations of one communicator wait at a time: 20 times what is under way at 10,000 a
// second. More means that some rank has none of them.
inline constexpr size_t kMaxWaitingOperations = 4096;

// Ranks leave an operation that waits for all within this, and this part of the shortest kernel,
// which has the time of the transfer: its last pieces arrive one after the other.
inline constexpr uint64_t kUnequalStopsNs = 10'000;
inline constexpr uint64_t kUnequalStopsDivisor = 8;

struct LocalRank {
  CommunicatorKey communicator;
  uint64_t rank = 0;
  bool has_kernel_times = false;
  bool call_is_bound = false;  // no kernel starts before its operation's call_ns (API v5 and later)
};

// Not thread-safe.
class ArrivalMatcher {
 private:
  struct Group;

 public:
  struct Member {
    LocalRank rank;
    Group* group;
    ArrivalCounts counts = {};

    // Whether there is another rank to compare it with, and times to compare.
    bool IsComparable() const { return rank.has_kernel_times && group->members.size() > 1; }
  };

  // The rank stays until it is removed. What is waiting in its communicator then will not be
  // compared.
  Member* Add(const LocalRank& rank);
  void Remove(Member* member);
  // Time stamps that drift make a rank untimed for good.
  static void SetHasKernelTimes(Member* member, bool has_kernel_times);

  // In the order in which they were completed on that rank.
  void Take(Member* member, const CompletedOperation& operation, uint64_t now_ns);
  void CountLost(const Member* member, uint64_t operations);
  // Gives up on operations that have waited for too long.
  void Expire(uint64_t now_ns);

  // Operations of a rank that were completed and not compared, by cause.
  const UncomparedOperations& uncompared() const { return uncompared_; }

 private:
  // An operation on one rank.
  struct Arrival {
    Member* member;
    CompletedOperation operation;

    uint64_t DurationNs() const { return operation.DurationNs(); }
  };
  // An operation that some ranks of this node have completed, and others not yet.
  struct Waiting {
    uint64_t since_ns = 0;  // when the first of them was read
    std::vector<Arrival> arrivals = {};
  };
  // The ranks of one communicator on this node.
  struct Group {
    std::vector<Member*> members;
    std::unordered_map<uint64_t, Waiting> waiting;  // by function and sequence
    bool has_rank_twice = false;
    bool is_timed = false;  // on every rank
  };

  static void Judge(Group& group);
  static bool CanBeOne(const std::vector<Arrival>& arrivals);
  void Compare(std::vector<Arrival>& arrivals);
  void GiveUp(Group& group);
  void Count(Uncompared cause, uint64_t operations) {
    uncompared_[static_cast<size_t>(cause)] += operations;
  }

  std::map<CommunicatorKey, Group> groups_;
  std::list<Member> members_;
  UncomparedOperations uncompared_{};
};

}  // namespace nccl_exporter::collector
