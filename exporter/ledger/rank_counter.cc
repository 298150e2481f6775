// SPDX-License-Identifier: Apache-2.0
#include "exporter/ledger/rank_counter.h"

#include <algorithm>
#include <cmath>

namespace nccl_exporter::exporter {
namespace {

template <typename Use>
void ForEachSize(const collector::CommunicatorSnapshot& communicator, Use use) {
  for (size_t function = 0; function < kFunctionCount; ++function) {
    if (!communicator.functions.IsInUse(function)) continue;
    const auto& sizes = communicator.functions[function].sizes;
    for (size_t size = 0; size < sizes.size(); ++size) {
      if (sizes[size].IsUsed())
        use(OperationKind{static_cast<Function>(function), static_cast<uint8_t>(size)},
            sizes[size]);
    }
  }
}

bool IsPointToPoint(const OperationKind& kind) { return TraitsOf(kind.function).is_point_to_point; }

}  // namespace

void RankCounter::BeginNew(const collector::CommunicatorSnapshot& communicator, const Moment& now) {
  generation_ = communicator.generation;
  counted_since_realtime_ns_ = communicator.created_realtime_ns;
  advanced_ns_ = now.monotonic_ns;
  steps_.Begin(now);
}

void RankCounter::BeginWithoutPast(const collector::CommunicatorSnapshot& communicator,
                                   const Moment& now) {
  BeginNew(communicator, now);
  counted_since_realtime_ns_ = now.realtime_ns;
  ForEachSize(communicator, [&](const OperationKind& key, const auto& counts) {
    operations_[key].Begin(counts);
    if (IsPointToPoint(key)) point_to_point_ += counts.operations;
  });
  if (communicator.network_bus_bytes) network_seen_ = *communicator.network_bus_bytes;
  point_to_point_at_begin_ = point_to_point_;
  progress_ = ProgressOf(communicator);
  Sum();
  kernel_ns_at_begin_ = NewKernelNs();
}

void RankCounter::Advance(const collector::CommunicatorSnapshot& communicator, const Moment& now,
                          const LedgerTimes& times) {
  const double elapsed = static_cast<double>(std::max<int64_t>(now.monotonic_ns - advanced_ns_, 0));
  const double decay = std::exp(-elapsed / static_cast<double>(times.mean_ns));
  advanced_ns_ = now.monotonic_ns;
  std::map<OperationKind, uint64_t> more;
  point_to_point_ = 0;
  ForEachSize(communicator, [&](const OperationKind& key, const auto& counts) {
    more[key] = operations_[key].See(counts, decay);
    if (IsPointToPoint(key)) point_to_point_ += counts.operations;
  });
  Sum();
  steps_.Advance(operations_, more, communicator.recent, decay, now, times);
  SeeNetwork(communicator);
  const uint64_t progress = ProgressOf(communicator);
  new_progress_ = std::max(progress, progress_) - std::min(progress, progress_);
  progress_ = progress;
  new_compared_ = 0;
  if (!communicator.arrivals) return;
  const uint64_t compared = communicator.arrivals->compared;
  new_compared_ = compared - std::min(compared, compared_seen_);
  compared_seen_ = compared;
}

// Nothing counts before the first operation of a direction is timed. Counts that decrease, as only
// a damaged segment has, count as unchanged.
void RankCounter::SeeNetwork(const collector::CommunicatorSnapshot& communicator) {
  new_network_.reset();
  if (!communicator.network_bus_bytes) return;
  const auto more = [](uint64_t now, uint64_t before) { return now - std::min(now, before); };
  const collector::NetworkBusBytes& now = *communicator.network_bus_bytes;
  new_network_.emplace();
  for (size_t i = 0; i < now.all.size(); ++i) {
    if (now.timed[i] == 0) continue;
    new_network_->is_first[i] = network_seen_.timed[i] == 0;
    new_network_->bytes.all[i] = more(now.all[i], network_seen_.all[i]);
    new_network_->bytes.timed[i] = more(now.timed[i], network_seen_.timed[i]);
    network_seen_.all[i] = now.all[i];
    network_seen_.timed[i] = now.timed[i];
  }
}

// A finalized communicator has nothing in flight, whatever was seen of it.
uint64_t RankCounter::ProgressOf(const collector::CommunicatorSnapshot& communicator) const {
  const bool is_known = communicator.completion_is_known || communicator.is_closed;
  const uint64_t twice = 2 * (communicator.started_sequence + point_to_point_);
  return twice - (is_known ? std::min<uint64_t>(communicator.in_flight.size(), twice) : 0);
}

// A sum that decreases, as only a damaged segment has, stays until it has grown past its highest
// value.
void RankCounter::Sum() {
  ByTraffic sums{};
  for (const auto& [key, one] : operations_) {
    sums[static_cast<size_t>(collector::TrafficOf(key.function))] += one.seen().busy_ns;
    has_times_ = has_times_ || one.seen().timed_operations != 0;
  }
  for (size_t i = 0; i < sums.size(); ++i) kernel_ns_[i] = std::max(kernel_ns_[i], sums[i]);
}

void RankCounter::EndInterval(int64_t monotonic_ns) {
  interval_start_ns_ = monotonic_ns;
  for (auto& [key, one] : operations_) one.EndInterval();
}

RankCounts RankCounter::Counts(bool spans_nodes, bool is_lowest) const {
  RankCounts counts;
  counts.progress = progress_;
  counts.kernel_ns = kernel_ns_;
  if (spans_nodes && steps_.counts()) {
    counts.steps = steps_.counts();
    counts.steps->since_realtime_ns = counted_since_realtime_ns_;
  }
  if (is_lowest || node_.counts() != NodeCounts{}) {
    counts.node = node_.counts();
    counts.node->is_lowest = is_lowest;
    counts.node->since_realtime_ns = counted_since_realtime_ns_;
  }
  return counts;
}

uint64_t RankCounter::NewKernelNs() const {
  uint64_t sum = 0;
  for (const uint64_t kernel_ns : kernel_ns_) sum += kernel_ns;
  return sum - kernel_ns_at_begin_;
}

uint64_t RankCounter::NewPointToPoint() const {
  return point_to_point_ - std::min(point_to_point_, point_to_point_at_begin_);
}

}  // namespace nccl_exporter::exporter
