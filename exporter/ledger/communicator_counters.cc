// SPDX-License-Identifier: Apache-2.0
#include "exporter/ledger/communicator_counters.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "proto/loss.h"

namespace nccl_exporter::exporter {
namespace {

// Operations of a communicator that are over, and whose times wait for proof, at most. Where more
// than these and those in flight are untimed, some stay so: operations by copy engine have no
// times, and no loss says so.
constexpr uint64_t kMostHeld = 1024;

// Losses of communicators that never had a slot take no operation of the others.
bool LosesTimes(Loss loss) {
  return TraitsOf(loss).kind != LossKind::kUnmatched && loss != Loss::kNoFreeCommunicatorSlot &&
         loss != Loss::kReservationFailed;
}

// Whether two collectives of it never run at once. That of a copy of libnccl, of operations for
// which no communicator was free, holds several communicators.
bool RunsOneByOne(const collector::CommunicatorSnapshot& communicator) {
  return HasDurations(communicator.timing_source) && !communicator.is_overflow;
}

// Whether nothing says that an operation stays untimed.
bool TimesAll(const collector::ProcessSnapshot& process,
              const collector::CommunicatorSnapshot& communicator) {
  for (size_t i = 0; i < kLossCount; ++i) {
    if (process.losses[i] != 0 && LosesTimes(static_cast<Loss>(i))) return false;
  }
  return RunsOneByOne(communicator) && communicator.unseen_operations == 0;
}

template <typename Use>
void ForEachSize(const collector::CommunicatorSnapshot& communicator, Use use) {
  for (size_t function = 0; function < kFunctionCount; ++function) {
    if (!communicator.functions.IsInUse(function)) continue;
    const auto& sizes = communicator.functions[function].sizes;
    for (size_t size = 0; size < sizes.size(); ++size) {
      if (sizes[size].IsUsed())
        use(OperationKey(static_cast<uint8_t>(function), static_cast<uint8_t>(size)), sizes[size]);
    }
  }
}

size_t IndexOf(const OperationKey& key) {
  return static_cast<size_t>(collector::TrafficOf(static_cast<Function>(key.first)));
}

bool IsPointToPoint(const OperationKey& key) {
  return TraitsOf(static_cast<Function>(key.first)).is_point_to_point;
}

}  // namespace

void CommunicatorCounters::Begin(const collector::CommunicatorSnapshot& communicator,
                                 const DerivedMoment& now) {
  generation_ = communicator.generation;
  since_realtime_ns_ = communicator.created_realtime_ns;
  counted_since_realtime_ns_ = communicator.created_realtime_ns;
  advanced_ns_ = now.monotonic_ns;
  timed_ns_ = now.monotonic_ns;
  unexplained_ns_ = kMostNs;  // what was before is not known
  steps_.Begin(now);
}

void CommunicatorCounters::BeginNew(const collector::ProcessSnapshot& process,
                                    const collector::CommunicatorSnapshot& communicator,
                                    const DerivedMoment& now) {
  Begin(communicator, now);
  is_exact_ = TimesAll(process, communicator);
}

void CommunicatorCounters::BeginWithoutPast(const collector::ProcessSnapshot& process,
                                            const collector::CommunicatorSnapshot& communicator,
                                            const DerivedMoment& now) {
  Begin(communicator, now);
  uint64_t untimed = 0;
  ForEachSize(communicator, [&](const OperationKey& key, const auto& counts) {
    OperationTimes& one = operations_[key];
    one.Begin(counts);
    untimed += one.untimed();
    if (IsPointToPoint(key)) point_to_point_ += counts.operations;
  });
  is_exact_ =
      TimesAll(process, communicator) && untimed <= kMostHeld + communicator.in_flight.size();
  counted_since_realtime_ns_ = now.realtime_ns;
  if (communicator.network_bus_bytes) network_seen_ = *communicator.network_bus_bytes;
  point_to_point_at_begin_ = point_to_point_;
  progress_ = ProgressOf(communicator);
  Sum();
  if (!is_exact_) {
    since_realtime_ns_ = now.realtime_ns;
    origin_ns_ = highest_ns_;
  }
  kernel_ns_at_begin_ = 0;
  kernel_ns_at_begin_ = NewKernelNs();
}

void CommunicatorCounters::Advance(const collector::ProcessSnapshot& process,
                                   const collector::CommunicatorSnapshot& communicator,
                                   const DerivedMoment& now, const DerivedTimes& times) {
  is_exact_ = is_exact_ && TimesAll(process, communicator);
  const double elapsed = static_cast<double>(std::max<int64_t>(now.monotonic_ns - advanced_ns_, 0));
  const double decay = std::exp(-elapsed / static_cast<double>(times.mean_ns));
  advanced_ns_ = now.monotonic_ns;
  std::map<OperationKey, uint64_t> more;
  point_to_point_ = 0;
  ForEachSize(communicator, [&](const OperationKey& key, const auto& counts) {
    OperationTimes& one = operations_[key];
    more[key] = one.See(counts, decay);
    if (one.has_new_times()) timed_ns_ = now.monotonic_ns;
    if (IsPointToPoint(key)) point_to_point_ += counts.operations;
  });
  if (!is_exact_) {
    unexplained_ns_ = std::min(unexplained_ns_ + elapsed, static_cast<double>(times.mean_ns));
    Estimate(communicator, now, times);
  }
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

// Nothing counts before the first operation of a direction is timed: from then on the communicator
// has timed bytes, and PromQL's rate() begins at the first value of each. Counts that decrease, as
// only a damaged segment has, count as unchanged.
void CommunicatorCounters::SeeNetwork(const collector::CommunicatorSnapshot& communicator) {
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

void CommunicatorCounters::Estimate(const collector::CommunicatorSnapshot& communicator,
                                    const DerivedMoment& now, const DerivedTimes& times) {
  const bool is_valid = communicator.timing_source != TimingSource::kNone &&
                        now.monotonic_ns - timed_ns_ <= times.mean_lasts_ns;
  const bool is_bounded = RunsOneByOne(communicator);
  std::array<double, collector::kTrafficCount> more{};
  ByTraffic untimed{};
  std::vector<Claim> claims;
  double measured_ns = 0;
  for (auto& [key, one] : operations_) {
    const double ns = one.EstimateUntimed(is_valid);
    untimed[IndexOf(key)] += one.untimed();
    if (is_bounded && !IsPointToPoint(key)) {
      claims.push_back({.one = &one, .ns = ns});
      measured_ns += static_cast<double>(one.new_busy_ns());
    } else {
      more[IndexOf(key)] += ns;
    }
  }
  more[static_cast<size_t>(collector::Traffic::kCollective)] +=
      Bound(std::move(claims), measured_ns);
  for (size_t i = 0; i < untimed.size(); ++i) {
    const double sum = estimated_ns_[i] + more[i];
    if (sum < kMostNs) estimated_ns_[i] = std::max(0.0, sum);
    if (untimed[i] == 0) estimated_ns_[i] = 0;
  }
}

double CommunicatorCounters::Bound(std::vector<Claim> claims, double measured_ns) {
  // A long operation began before the time that is remembered.
  unexplained_ns_ = std::max(unexplained_ns_ - measured_ns, std::min(unexplained_ns_, 0.0));
  const auto longest_mean_ns = [&] {
    double longest = 0;
    for (const Claim& claim : claims) longest = std::max(longest, claim.one->mean_ns());
    return longest;
  };
  double sum = 0;
  for (const Claim& claim : claims) sum += claim.ns;
  std::ranges::sort(claims, std::ranges::greater(), &Claim::ns);
  for (const Claim& claim : claims) {
    if (sum <= unexplained_ns_ + longest_mean_ns()) break;
    sum -= claim.ns;
    claim.one->ForgetMean(claim.ns);
    unexplained_ns_ = std::max(unexplained_ns_, 0.0);  // what it took too much before
  }
  unexplained_ns_ -= sum;
  return sum;
}

// A finalized communicator has nothing in flight, whatever was seen of it.
uint64_t CommunicatorCounters::ProgressOf(
    const collector::CommunicatorSnapshot& communicator) const {
  const bool is_known = communicator.completion_is_known || communicator.is_closed;
  const uint64_t twice = 2 * (communicator.started_sequence + point_to_point_);
  return twice - (is_known ? std::min<uint64_t>(communicator.in_flight.size(), twice) : 0);
}

void CommunicatorCounters::Sum() {
  ByTraffic sums{};
  for (const auto& [key, one] : operations_) {
    sums[IndexOf(key)] += one.seen().busy_ns;
    has_times_ = has_times_ || one.seen().timed_operations != 0;
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    highest_ns_[i] = std::max(highest_ns_[i], sums[i] + static_cast<uint64_t>(estimated_ns_[i]));
  }
}

void CommunicatorCounters::EndInterval(int64_t monotonic_ns) {
  interval_start_ns_ = monotonic_ns;
  for (auto& [key, one] : operations_) one.EndInterval();
}

collector::DerivedCounts CommunicatorCounters::Counts(bool spans_nodes, bool is_lowest) const {
  collector::DerivedCounts counts;
  counts.since_realtime_ns = since_realtime_ns_;
  counts.progress = progress_;
  for (size_t i = 0; i < counts.kernel_ns.size(); ++i)
    counts.kernel_ns[i] = highest_ns_[i] - origin_ns_[i];
  if (spans_nodes && steps_.has_steps()) {
    counts.steps = collector::StepCounts{
        .steps = steps_.steps(), .waits_ns = {}, .since_realtime_ns = counted_since_realtime_ns_};
    for (const auto& [key, wait_ns] : steps_.waits_ns()) {
      const collector::OperationKind kind{static_cast<Function>(key.first), key.second};
      counts.steps->waits_ns[kind] = wait_ns;
    }
  }
  if (is_lowest || node_.has_counted()) {
    counts.node = node_.Counts();
    counts.node->is_lowest = is_lowest;
    counts.node->since_realtime_ns = counted_since_realtime_ns_;
  }
  return counts;
}

uint64_t CommunicatorCounters::NewKernelNs() const {
  uint64_t sum = 0;
  for (size_t i = 0; i < highest_ns_.size(); ++i) sum += highest_ns_[i] - origin_ns_[i];
  return sum - kernel_ns_at_begin_;
}

uint64_t CommunicatorCounters::NewPointToPoint() const {
  return point_to_point_ - std::min(point_to_point_, point_to_point_at_begin_);
}

}  // namespace nccl_exporter::exporter
