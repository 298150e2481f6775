// SPDX-License-Identifier: Apache-2.0
// NodeHistory, what the communicators of this node did in each of the latest steps.
//
// A step holds only what happened in it. Memory is bounded by kHistorySteps times kHistorySeries
// (some 0.6 KB each, where durations of every length occur), kHistoryRanks (0.5 KB, with the waits
// of kMostStepWaits), kHistoryTraffic (48 bytes) and kHistoryLosses (40 bytes): by these sizes some
// 110 MB at most. Copies share the steps, which never change.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/ledger/book.h"
#include "exporter/ledger/local_communicators.h"
#include "proto/buckets.h"
#include "proto/collective.h"
#include "proto/loss.h"

namespace nccl_exporter::exporter {

// Steps that are kept. The daemon's are kHistoryStep apart: ten minutes.
inline constexpr size_t kHistorySteps = 120;
inline constexpr std::chrono::seconds kHistoryStep{5};

// Entries of one step: functions of communicators; ranks that did something; functions and size
// classes of these ranks, four per rank; causes of losses of processes. Users share each
// (fair_shares.h). Entries beyond a limit are left out and counted.
inline constexpr size_t kHistorySeries = 256;
inline constexpr size_t kHistoryRanks = 1024;
inline constexpr size_t kHistoryTraffic = 4 * kHistoryRanks;
inline constexpr size_t kHistoryLosses = 1024;

// Durations are kept in bins a factor 2^(1/4) wide: two native buckets each. Bin 0 takes what is up
// to 2^-20 s, bin i what is up to 2^(i/4 - 20) s, the last one what is longer than 2^10 s.
inline constexpr size_t kBucketsPerBin = 2;
inline constexpr size_t kDurationBins = (DurationBuckets::kCount - 2) / kBucketsPerBin + 2;

// Operations whose duration is in one bin, in a step: at most kMostOfBin, which is more than a GPU
// completes in one. History has many of them.
struct BinCount {
  uint32_t bin : 7;
  uint32_t operations : 25;
};
inline constexpr uint32_t kMostOfBin = (1 << 25) - 1;
static_assert(kDurationBins <= 1 << 7);

// Operations of one function on one communicator, all local ranks together, in a step or several.
struct ActivityDelta : collector::SizeClassSnapshot {
  double bus_bytes = 0;             // of the timed ones; 0 where the bus factor is not known
  std::vector<BinCount> durations;  // by bin; not in sums

  // NaN where nothing was timed.
  double MeanDurationSeconds() const;
  double BusBandwidth() const;  // bytes per second of busy time

  ActivityDelta& operator+=(const ActivityDelta& more);  // without durations
};

// Operations of one rank by function and size class, in a step or several.
struct TrafficDelta : collector::SizeClassSnapshot {
  Function function = Function::kOther;
  uint8_t size_class = 0;

  double BusySeconds() const { return static_cast<double>(busy_ns) / 1e9; }
};

// Activity of one rank in a step or several: only the functions and size classes that it used.
struct RankDelta {
  collector::ArrivalCounts arrivals;
  collector::NetworkCounts network;              // waits of its timed network operations
  collector::NetworkBusBytes network_bus_bytes;  // if they are known
  std::vector<TrafficDelta> traffic;
  // As the book counts them (StepCounts), across nodes.
  uint64_t steps = 0;
  std::map<OperationKind, uint64_t> step_waits_ns;

  RankDelta& operator+=(const RankDelta& more);
};
using RankKey = std::pair<collector::CommunicatorKey, uint64_t>;  // and the rank in it

// Time of one rank in timed collectives, in seconds per second. The rank with the least time waited
// for no other, so its time is the transfer, and the rest of the others' is waiting.
struct RankWaiting {
  uint64_t rank = 0;
  double in_collectives = 0;
  double transfer = 0;  // least time of the ranks of the communicator on this node

  double waiting() const { return in_collectives - transfer; }
};

// Operations that a process could not follow, or left untimed.
struct LossDelta {
  collector::FileKey process;
  uint64_t uid = 0;  // its owner
  Loss cause = Loss::kNoFreeCommunicatorSlot;
  uint64_t events = 0;
};

// A stretch of time that ends with the newest step.
struct HistoryWindow {
  double seconds = 0;
  ActivityDelta activity;
};
struct RankWindow {
  double seconds = 0;
  collector::ArrivalCounts arrivals;
  collector::NetworkCounts network;
  collector::NetworkBusBytes bus_bytes;

  // Bytes of all network operations of the direction, estimated from the timed ones; nothing where
  // it is not known what part was timed.
  std::optional<double> AllBytes(NetworkDirection direction) const;
};
struct RanksWindow {
  double seconds = 0;
  std::map<RankKey, RankDelta> ranks;
};

// Part of a FunctionSnapshot that a step compares: a fifth of its memory.
struct FunctionCounts {
  Function function = Function::kOther;
  std::array<collector::SizeClassSnapshot, kSizeClassCount> sizes{};
  std::array<uint32_t, kDurationBins> bins{};  // modulo 2^32
};

// Not thread-safe: its owner locks. A copy may be read on another thread while the original
// records.
class NodeHistory {
 public:
  // Compares the book with the one before; the first one is only remembered. `monotonic_ns` is the
  // moment, by a clock that is never set.
  void Record(const Book& book, int64_t monotonic_ns);

  size_t steps() const { return steps_.size(); }
  // By the node's clock, nanoseconds since the epoch. Step 0 is the oldest.
  int64_t EndRealtimeNs(size_t step) const { return steps_[step]->end_realtime_ns; }
  double Seconds(size_t step) const { return steps_[step]->seconds; }

  // Null where nothing happened.
  const ActivityDelta* At(size_t step, const collector::CommunicatorKey& communicator,
                          Function function) const;

  // Sums over the newest steps: `seconds` of them, or a little more; less where that is all there
  // is.
  HistoryWindow Recent(const collector::CommunicatorKey& communicator, Function function,
                       double seconds) const;
  RankWindow RecentRank(const collector::CommunicatorKey& communicator, uint64_t rank,
                        double seconds) const;
  RanksWindow RecentRanks(double seconds) const;
  // Operations of each job that did any, over the steps that ended less than `seconds` ago.
  std::map<JobKey, uint64_t> RecentOperations(double seconds) const;
  // Arrivals that were compared in all steps: those of the rank with the most in each communicator
  // and step, summed.
  uint64_t ComparedOperations() const;
  // The ranks with timed collectives in that step, by rank.
  std::vector<RankWaiting> Waiting(size_t step,
                                   const collector::CommunicatorKey& communicator) const;
  // By process and cause.
  const std::vector<LossDelta>& Losses(size_t step) const { return steps_[step]->losses; }

  // Functions, ranks and losses that found no place, summed over all steps since the start.
  uint64_t left_out() const { return left_out_; }

 private:
  // Steps share the key of a communicator, whose names may be long.
  using SharedKey = std::shared_ptr<const collector::CommunicatorKey>;
  // Orders pairs by what their first part points at, then by the second.
  struct ByKey {
    using is_transparent = void;
    template <typename Pair, typename Other>
    bool operator()(const Pair& pair, const Other& other) const {
      const auto order = *pair.first <=> *other.first;
      return order != 0 ? order < 0 : pair.second < other.second;
    }
  };
  struct Step {
    int64_t end_realtime_ns = 0;
    double seconds = 0;
    std::map<std::pair<SharedKey, Function>, ActivityDelta, ByKey> activities;
    std::map<std::pair<SharedKey, uint64_t>, RankDelta, ByKey> ranks;  // by rank in it
    uint64_t compared = 0;                                             // see ComparedOperations()
    std::vector<LossDelta> losses;
  };
  using SlotKey = std::tuple<collector::FileKey, uint32_t, uint64_t>;  // segment, slot, generation
  struct Counts {
    std::vector<FunctionCounts> functions;  // those in use, by Function
    collector::ArrivalCounts arrivals;
    collector::NetworkCounts network;
    collector::NetworkBusBytes network_bus_bytes;
    std::optional<StepCounts> steps;
  };
  // Counts and losses of the latest snapshot.
  struct Look {
    std::map<SlotKey, Counts> counts;
    std::map<collector::FileKey, std::array<uint64_t, kLossCount>> losses;
    int64_t realtime_ns = 0;
    int64_t monotonic_ns = 0;
  };

  // Calls `visit` with each of the newest steps that ended less than `seconds` ago. Returns their
  // seconds.
  template <typename Visit>
  double ForNewest(double seconds, Visit visit) const;
  // The key that the newest step has, if it has one.
  SharedKey Share(const collector::CommunicatorKey& key) const;
  static void Compare(const RankOnNode& rank, const SharedKey& key, const Counts& before,
                      const Counts& now, Step& step);
  static uint64_t ComparedIn(const Step& step);
  void CompareLosses(const collector::NodeSnapshot& node, Look& now, Step& step) const;
  void Fit(Step& step);
  // Whether an object that is met for the first time, and began at `realtime_ns`, began since the
  // last step or just before.
  bool IsNew(int64_t realtime_ns) const;

  std::shared_ptr<const Look> before_;  // null: there was none. Copies share it
  std::deque<std::shared_ptr<const Step>> steps_;
  uint64_t left_out_ = 0;
};

}  // namespace nccl_exporter::exporter
