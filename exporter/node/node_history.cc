// SPDX-License-Identifier: Apache-2.0
// Differences between snapshots.
#include "exporter/node/node_history.h"

#include <algorithm>
#include <array>
#include <limits>

namespace nccl_exporter::exporter {
namespace {

constexpr int64_t kLatestSightNs = std::chrono::nanoseconds(kLatestSight).count();

// Counters only grow; where one did not, it is another one's, and what it says is new.
uint64_t Grown(uint64_t before, uint64_t now) { return now >= before ? now - before : now; }

constexpr size_t BinOf(size_t bucket) {
  return bucket == 0 ? 0 : std::min((bucket - 1) / kBucketsPerBin + 1, kDurationBins - 1);
}

void AddDurations(const collector::FunctionSnapshot& before, const collector::FunctionSnapshot& now,
                  ActivityDelta& activity) {
  std::array<uint64_t, kDurationBins> bins{};
  for (const auto& [bin, count] : activity.durations) bins[bin] = count;
  for (size_t bucket = 0; bucket < now.duration.size(); ++bucket) {
    bins[BinOf(bucket)] += Grown(before.duration[bucket], now.duration[bucket]);
  }
  activity.durations.clear();
  for (size_t bin = 0; bin < bins.size(); ++bin) {
    if (bins[bin] == 0) continue;
    const uint64_t count = std::min<uint64_t>(bins[bin], std::numeric_limits<uint32_t>::max());
    activity.durations.emplace_back(static_cast<uint8_t>(bin), static_cast<uint32_t>(count));
  }
}

ActivityDelta Difference(const collector::FunctionSnapshot& before,
                         const collector::FunctionSnapshot& now, Function function,
                         uint64_t ranks) {
  ActivityDelta activity;
  for (size_t i = 0; i < now.sizes.size(); ++i) {
    activity.operations += Grown(before.sizes[i].operations, now.sizes[i].operations);
    activity.bytes += Grown(before.sizes[i].bytes, now.sizes[i].bytes);
    activity.timed_operations +=
        Grown(before.sizes[i].timed_operations, now.sizes[i].timed_operations);
    activity.busy_ns += Grown(before.sizes[i].busy_ns, now.sizes[i].busy_ns);
    activity.bus_bytes +=
        BusBytes(function, Grown(before.sizes[i].timed_bytes, now.sizes[i].timed_bytes),
                 static_cast<uint32_t>(ranks));
  }
  return activity;
}

// So that nobody's communicators find no place in a step because of another user's.
std::vector<CommunicatorOnNode> SmallestUsersFirst(std::vector<CommunicatorOnNode> communicators) {
  std::map<uint64_t, size_t> count;
  for (const CommunicatorOnNode& communicator : communicators) ++count[communicator.key.uid];
  std::ranges::stable_sort(communicators, {},
                           [&](const auto& communicator) { return count[communicator.key.uid]; });
  return communicators;
}

// The place of `key`, which is made where there is room for it.
template <typename Map>
typename Map::mapped_type* Room(Map& map, const typename Map::key_type& key, size_t limit) {
  const auto found = map.find(key);
  if (found != map.end()) return &found->second;
  return map.size() < limit ? &map[key] : nullptr;
}

}  // namespace

ActivityDelta& ActivityDelta::operator+=(const ActivityDelta& more) {
  operations += more.operations;
  bytes += more.bytes;
  timed_operations += more.timed_operations;
  busy_ns += more.busy_ns;
  bus_bytes += more.bus_bytes;
  return *this;
}

double ActivityDelta::MeanDurationSeconds() const {
  if (timed_operations == 0) return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(busy_ns) / 1e9 / static_cast<double>(timed_operations);
}

double ActivityDelta::BusBandwidth() const {
  if (busy_ns == 0 || bus_bytes == 0) return std::numeric_limits<double>::quiet_NaN();
  return bus_bytes / (static_cast<double>(busy_ns) / 1e9);
}

void NodeHistory::Record(const collector::NodeSnapshot& node, int64_t monotonic_ns) {
  Step step{.end_realtime_ns = node.taken_realtime_ns,
            .seconds = static_cast<double>(monotonic_ns - before_monotonic_ns_) / 1e9,
            .activities = {},
            .arrivals = {}};
  std::map<SlotKey, Counts> now;
  for (const CommunicatorOnNode& communicator : SmallestUsersFirst(CommunicatorsOnNode(node))) {
    for (const RankOnNode& rank : communicator.ranks) {
      const collector::CommunicatorSnapshot& here = *rank.communicator;
      const SlotKey place{rank.process->file, here.slot, here.generation};
      Counts& counts = now[place];
      counts.functions = here.functions;
      counts.arrivals = here.arrivals.value_or(collector::ArrivalCounts{});
      // One that is met for the first time began since the last step, or just before, or was there
      // before us.
      const auto before = before_.find(place);
      const bool is_new = before == before_.end();
      if (!has_before_ ||
          (is_new && here.created_realtime_ns < before_realtime_ns_ - kLatestSightNs))
        continue;
      Compare(rank, communicator.key, is_new ? Counts{} : before->second, counts, step);
      CompareArrivals(rank, communicator.key, is_new ? Counts{} : before->second, counts, step);
    }
  }
  if (has_before_ && step.seconds > 0) steps_.push_back(std::move(step));
  if (steps_.size() > kHistorySteps) steps_.pop_front();
  before_ = std::move(now);
  before_realtime_ns_ = node.taken_realtime_ns;
  before_monotonic_ns_ = monotonic_ns;
  has_before_ = true;
}

void NodeHistory::Compare(const RankOnNode& rank, const collector::CommunicatorKey& key,
                          const Counts& before, const Counts& now, Step& step) {
  for (size_t i = 0; i < now.functions.size(); ++i) {
    if (!now.functions.IsInUse(i)) continue;
    const collector::FunctionSnapshot& old = before.functions[i];
    const collector::FunctionSnapshot& counts = now.functions[i];
    const auto function = static_cast<Function>(i);
    const ActivityDelta difference = Difference(old, counts, function, rank.communicator->ranks);
    if (difference.operations == 0 && difference.timed_operations == 0) continue;
    ActivityDelta* const sum = Room(step.activities, {key, function}, kHistorySeries);
    if (sum == nullptr) {
      ++left_out_;
      continue;
    }
    *sum += difference;
    AddDurations(old, counts, *sum);
  }
}

void NodeHistory::CompareArrivals(const RankOnNode& rank, const collector::CommunicatorKey& key,
                                  const Counts& before, const Counts& now, Step& step) {
  if (now.arrivals == before.arrivals) return;
  collector::ArrivalCounts* const sum =
      Room(step.arrivals, {key, rank.communicator->rank}, kHistoryRanks);
  if (sum == nullptr) {
    ++left_out_;
    return;
  }
  sum->compared += Grown(before.arrivals.compared, now.arrivals.compared);
  sum->last += Grown(before.arrivals.last, now.arrivals.last);
  sum->lateness_ns += Grown(before.arrivals.lateness_ns, now.arrivals.lateness_ns);
  sum->estimated += Grown(before.arrivals.estimated, now.arrivals.estimated);
}

const ActivityDelta* NodeHistory::At(size_t step, const collector::CommunicatorKey& communicator,
                                     Function function) const {
  const auto found = steps_[step].activities.find({communicator, function});
  return found == steps_[step].activities.end() ? nullptr : &found->second;
}

HistoryWindow NodeHistory::Recent(const collector::CommunicatorKey& communicator, Function function,
                                  double seconds) const {
  HistoryWindow stretch;
  for (size_t step = steps_.size(); step-- > 0 && stretch.seconds < seconds;) {
    stretch.seconds += steps_[step].seconds;
    if (const ActivityDelta* const activity = At(step, communicator, function))
      stretch.activity += *activity;
  }
  return stretch;
}

ArrivalWindow NodeHistory::RecentArrivals(const collector::CommunicatorKey& communicator,
                                          uint64_t rank, double seconds) const {
  ArrivalWindow stretch;
  for (auto step = steps_.rbegin(); step != steps_.rend() && stretch.seconds < seconds; ++step) {
    stretch.seconds += step->seconds;
    const auto found = step->arrivals.find({communicator, rank});
    if (found == step->arrivals.end()) continue;
    stretch.counts += found->second;
  }
  return stretch;
}

}  // namespace nccl_exporter::exporter
