// SPDX-License-Identifier: Apache-2.0
#include "exporter/ledger/node_counter.h"

#include <cmath>

namespace nccl_exporter::exporter {
namespace {

// Another collective and size is counted when it has moved so many times the bytes.
constexpr uint64_t kLargerBy = 2;

// Collectives of this size and more are bound by bandwidth: those that NCCLBandwidthDegraded reads.
constexpr size_t kFirstLargeClass = 4;
static_assert(kSizeClassBounds[kFirstLargeClass] == 16 << 20);

constexpr uint64_t kMost = uint64_t{1} << 62;

double BusBytesOf(Function function, uint64_t bytes, uint64_t ranks) {
  return BusBytes(function, bytes, static_cast<uint32_t>(ranks));
}

bool IsLarge(const OperationKind& kind, uint64_t ranks) {
  return !TraitsOf(kind.function).is_point_to_point && kind.size_class >= kFirstLargeClass &&
         BusBytesOf(kind.function, 1, ranks) > 0;
}

// Counts of this interval. Nothing was timed where a count is 0.
LargeCounts NewCounts(Function function, const OperationTimes& times, uint64_t ranks) {
  const collector::SizeClassSnapshot more = times.InThisInterval();
  const double bus_bytes = std::nearbyint(BusBytesOf(function, more.timed_bytes, ranks));
  if (!(bus_bytes < static_cast<double>(kMost))) return {};
  return {.timed_operations = more.timed_operations,
          .bus_bytes = static_cast<uint64_t>(bus_bytes),
          .busy_ns = more.busy_ns};
}

bool IsTimed(const LargeCounts& counts) {
  return counts.timed_operations != 0 && counts.bus_bytes != 0 && counts.busy_ns != 0;
}

bool IsFaster(const LargeCounts& a, const LargeCounts& b) {
  return static_cast<double>(a.bus_bytes) * static_cast<double>(b.busy_ns) >
         static_cast<double>(b.bus_bytes) * static_cast<double>(a.busy_ns);
}

bool Fits(uint64_t sum, uint64_t more) { return more < kMost && sum + more < kMost; }

}  // namespace

void NodeCounter::CountProgress(uint64_t more) {
  const uint64_t sum = counts_.progress.value_or(0);
  counts_.progress = Fits(sum, more) ? sum + more : sum;
}

void NodeCounter::CountLarge(std::span<const TimesByOperation* const> local, uint64_t ranks) {
  if (!Choose(local, ranks)) return;
  LargeCounts fastest;
  for (const TimesByOperation* const operations : local) {
    const auto found = operations->find(*choice_);
    if (found == operations->end()) continue;
    const LargeCounts one = NewCounts(choice_->function, found->second, ranks);
    if (IsTimed(one) && (!IsTimed(fastest) || IsFaster(one, fastest))) fastest = one;
  }
  if (!IsTimed(fastest)) return;
  LargeCounts& sum = counts_.large[*choice_];
  if (Fits(sum.timed_operations, fastest.timed_operations) &&
      Fits(sum.bus_bytes, fastest.bus_bytes) && Fits(sum.busy_ns, fastest.busy_ns))
    sum += fastest;
}

void NodeCounter::CountNetwork(const NetworkIncrease& more,
                               const collector::NetworkBusBytes& before) {
  if (!counts_.network) counts_.network.emplace();
  collector::NetworkBusBytes& sum = *counts_.network;
  for (size_t i = 0; i < more.bytes.all.size(); ++i) {
    if (more.is_first[i] && before.timed[i] != 0) continue;
    const uint64_t all = more.bytes.all[i], timed = more.bytes.timed[i];
    if (all >= kMost || timed >= kMost) continue;
    if (!Fits(sum.all[i], all) || !Fits(sum.timed[i], timed)) sum.all[i] = sum.timed[i] = 0;
    sum.all[i] += all;
    sum.timed[i] += timed;
  }
}

bool NodeCounter::Choose(std::span<const TimesByOperation* const> local, uint64_t ranks) {
  std::map<OperationKind, double> bytes;
  for (const TimesByOperation* const operations : local) {
    for (const auto& [key, times] : *operations) {
      if (IsLarge(key, ranks)) bytes[key] += static_cast<double>(times.seen().bytes);
    }
  }
  OperationKind most;
  double most_bytes = 0;
  for (const auto& [key, sum] : bytes) {
    if (sum <= most_bytes) continue;
    most = key;
    most_bytes = sum;
  }
  if (most_bytes == 0) return choice_.has_value();
  if (!choice_ || most_bytes >= static_cast<double>(kLargerBy) * bytes[*choice_]) choice_ = most;
  return true;
}

}  // namespace nccl_exporter::exporter
