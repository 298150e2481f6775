// SPDX-License-Identifier: Apache-2.0
// FunctionSnapshots, what one rank has counted of each function on one communicator. Plain data,
// for any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "proto/buckets.h"
#include "proto/collective.h"

namespace nccl_exporter::collector {

// Maximum of a count of a histogram. Prometheus refuses a whole scrape in which the buckets of one
// native histogram are more than 2^63 together, and any user can write a segment. Operations of 9
// years at a million per second are fewer.
inline constexpr uint64_t kMostHistogramCount = uint64_t{1} << 48;

struct SizeClassSnapshot {
  uint64_t operations = 0;
  uint64_t bytes = 0;
  uint64_t timed_operations = 0;
  uint64_t timed_bytes = 0;
  uint64_t busy_ns = 0;

  bool IsUsed() const { return operations != 0; }
  bool operator==(const SizeClassSnapshot&) const = default;
  SizeClassSnapshot& operator+=(const SizeClassSnapshot& more);
};

// The timed operations of one size class, if they have a histogram of their own.
struct SizedDurations {
  std::vector<uint64_t> counts;  // as FunctionSnapshot::duration; empty: no histogram
  uint64_t busy_ns = 0;          // sum of their durations

  bool operator==(const SizedDurations&) const = default;
  SizedDurations& operator-=(const SizedDurations& part);  // counts end at 0
};

// Counts of one function on one communicator, since the communicator was created.
struct FunctionSnapshot {
  uint64_t calls = 0;
  uint64_t completed = 0;
  std::array<SizeClassSnapshot, kSizeClassCount> sizes{};
  std::array<uint64_t, DurationBuckets::kCount> duration{};  // not cumulative
  // Parts of `duration` by size class. From a segment they have all or nothing; in a sum of
  // several, the rest belongs to those that have nothing. Read on request: see ReadTerms.
  std::array<SizedDurations, kSizeClassCount> duration_by_size{};
  std::array<uint64_t, BandwidthBuckets::kCount> bandwidth{};  // not cumulative
  uint64_t bandwidth_sum_kib = 0;                              // KiB/s

  // Whether it was ever called, or any operation of it started.
  bool IsUsed() const {
    return calls != 0 ||
           std::ranges::any_of(sizes, [](const SizeClassSnapshot& size) { return size.IsUsed(); });
  }
  bool operator==(const FunctionSnapshot&) const = default;
};

inline SizeClassSnapshot& SizeClassSnapshot::operator+=(const SizeClassSnapshot& more) {
  operations += more.operations;
  bytes += more.bytes;
  timed_operations += more.timed_operations;
  timed_bytes += more.timed_bytes;
  busy_ns += more.busy_ns;
  return *this;
}

inline SizedDurations& SizedDurations::operator-=(const SizedDurations& part) {
  for (size_t i = 0; i < part.counts.size(); ++i) counts[i] -= std::min(counts[i], part.counts[i]);
  busy_ns -= std::min(busy_ns, part.busy_ns);
  return *this;
}

// Counts by function. Those of a function that was never used, as most are on a communicator, are
// zeros and take no memory; copies share what is not changed, for several snapshots are held at a
// time.
class FunctionSnapshots {
 public:
  static constexpr size_t size() { return kFunctionCount; }
  const FunctionSnapshot& operator[](size_t function) const {
    static const FunctionSnapshot kUnused;
    return in_use_[function] ? *in_use_[function] : kUnused;
  }
  bool IsInUse(size_t function) const { return in_use_[function] != nullptr; }
  // From now on in use.
  FunctionSnapshot& Change(size_t function) {
    std::shared_ptr<FunctionSnapshot>& counts = in_use_[function];
    if (!counts) counts = std::make_shared<FunctionSnapshot>();
    if (counts.use_count() > 1) counts = std::make_shared<FunctionSnapshot>(*counts);
    return *counts;
  }

 private:
  std::array<std::shared_ptr<FunctionSnapshot>, kFunctionCount> in_use_;
};

}  // namespace nccl_exporter::collector
