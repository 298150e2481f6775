// SPDX-License-Identifier: Apache-2.0
// Bounds of the distances between the clocks of GPUs, proven by collectives of all communicators
// that share the GPUs: no rank leaves an operation that waits for all before every rank has entered
// it. This binds clocks closely where calls do not, since the host is far ahead of its GPU. A pair
// of GPUs has one distance, whichever communicators they meet in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

#include "collector/arrivals/clock_distance.h"
#include "collector/arrivals/gpu_clock_bounds.h"

namespace nccl_exporter::collector {

// A clock of a user's GPU: clocks of different users have nothing in common.
struct ClockNumber {
  uint64_t uid = 0;
  uint64_t number = 0;

  auto operator<=>(const ClockNumber&) const = default;
};

// The distance of two clocks, seen from the first one: what must be added to its times is greater
// than what must be added to those of the second one by this.
class ClockPair {
 public:
  // The stop may be written by a thread that is ahead of the others of its kernel, and clocks tick
  // in steps.
  static constexpr int64_t kSlackNs = 2 * GpuClockBounds::kTickNs;

  static ClockPair OfOneClock() { return ClockPair(nullptr, false, true); }
  static ClockPair Unknown() { return ClockPair(nullptr, false, false); }
  ClockPair(ClockDistance* distance, bool is_turned) : ClockPair(distance, is_turned, false) {}

  // An operation that ran on both, by their clocks.
  void Learn(uint64_t first_start_ns, uint64_t first_stop_ns, uint64_t second_start_ns,
             uint64_t second_stop_ns, int64_t as_of_ns) const {
    if (distance_ == nullptr) return;
    const int64_t least_ns = Difference(second_start_ns, first_stop_ns) - kSlackNs;
    const int64_t most_ns = Difference(second_stop_ns, first_start_ns) + kSlackNs;
    distance_->LearnLeast(is_turned_ ? -most_ns : least_ns, as_of_ns);
    distance_->LearnMost(is_turned_ ? -least_ns : most_ns, as_of_ns);
  }
  TimeRange At(int64_t then_ns) const {
    if (distance_ == nullptr) {
      return is_one_clock_ ? TimeRange{}
                           : TimeRange{-ClockDistance::kUnknown, ClockDistance::kUnknown};
    }
    const TimeRange range{distance_->LeastAt(then_ns), distance_->MostAt(then_ns)};
    return is_turned_ ? TimeRange{-range.most_ns, -range.least_ns} : range;
  }

  // One time less another, of any clocks, within what a ClockDistance takes.
  static int64_t Difference(uint64_t one_ns, uint64_t other_ns) {
    return std::clamp(static_cast<int64_t>(one_ns - other_ns), -ClockDistance::kUnknown,
                      ClockDistance::kUnknown);
  }

 private:
  ClockPair(ClockDistance* distance, bool is_turned, bool is_one_clock)
      : distance_(distance), is_turned_(is_turned), is_one_clock_(is_one_clock) {}

  ClockDistance* distance_;
  bool is_turned_;
  bool is_one_clock_;
};

// Not thread-safe.
class ClockDifferences {
 public:
  // Pairs of one user's clocks, of a KiB each: all pairs of 45 GPUs. What is over is bound by calls
  // and deliveries only.
  static constexpr size_t kMaxPairsOfUser = 1024;

  // Valid until one of both clocks is forgotten.
  ClockPair Of(ClockNumber first, ClockNumber second) {
    if (first == second) return ClockPair::OfOneClock();
    if (first.uid != second.uid) return ClockPair::Unknown();
    const bool is_turned = second < first;
    const Key key = is_turned ? Key{second, first} : Key{first, second};
    const auto found = distances_.find(key);
    if (found != distances_.end()) return {&found->second, is_turned};
    size_t& pairs = pairs_of_user_[first.uid];
    if (pairs >= kMaxPairsOfUser) return ClockPair::Unknown();
    ++pairs;
    return {&distances_[key], is_turned};
  }

  void Forget(ClockNumber clock) {
    const auto erased = std::erase_if(distances_, [&](const auto& pair) {
      return pair.first.first == clock || pair.first.second == clock;
    });
    const auto user = pairs_of_user_.find(clock.uid);
    if (user == pairs_of_user_.end()) return;
    user->second -= erased;
    if (user->second == 0) pairs_of_user_.erase(user);
  }

 private:
  using Key = std::pair<ClockNumber, ClockNumber>;  // the lower one first

  std::map<Key, ClockDistance> distances_;
  std::map<uint64_t, size_t> pairs_of_user_;
};

}  // namespace nccl_exporter::collector
