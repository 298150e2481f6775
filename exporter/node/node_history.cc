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

void AddTraffic(const collector::FunctionSnapshot& before, const collector::FunctionSnapshot& now,
                Function function, std::vector<TrafficDelta>& traffic) {
  for (size_t i = 0; i < now.sizes.size(); ++i) {
    const collector::SizeClassSnapshot& old = before.sizes[i];
    const collector::SizeClassSnapshot& counts = now.sizes[i];
    if (old == counts) continue;
    traffic.push_back({.function = function,
                       .size_class = static_cast<uint8_t>(i),
                       .operations = Grown(old.operations, counts.operations),
                       .bytes = Grown(old.bytes, counts.bytes),
                       .timed_operations = Grown(old.timed_operations, counts.timed_operations),
                       .timed_bytes = Grown(old.timed_bytes, counts.timed_bytes),
                       .busy_ns = Grown(old.busy_ns, counts.busy_ns)});
  }
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

double TrafficDelta::MeanSeconds() const {
  if (timed_operations == 0) return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(busy_ns) / 1e9 / static_cast<double>(timed_operations);
}

RankDelta& RankDelta::operator+=(const RankDelta& more) {
  arrivals += more.arrivals;
  for (const TrafficDelta& delta : more.traffic) {
    const auto found = std::ranges::find_if(traffic, [&](const TrafficDelta& here) {
      return here.function == delta.function && here.size_class == delta.size_class;
    });
    if (found == traffic.end()) {
      traffic.push_back(delta);
      continue;
    }
    found->operations += delta.operations;
    found->bytes += delta.bytes;
    found->timed_operations += delta.timed_operations;
    found->timed_bytes += delta.timed_bytes;
    found->busy_ns += delta.busy_ns;
  }
  return *this;
}

void NodeHistory::Record(const collector::NodeSnapshot& node, int64_t monotonic_ns) {
  Step step{.end_realtime_ns = node.taken_realtime_ns,
            .seconds = static_cast<double>(monotonic_ns - before_monotonic_ns_) / 1e9,
            .activities = {},
            .ranks = {},
            .losses = {}};
  std::map<SlotKey, Counts> now;
  for (const CommunicatorOnNode& communicator : SmallestUsersFirst(CommunicatorsOnNode(node))) {
    for (const RankOnNode& rank : communicator.ranks) {
      const collector::CommunicatorSnapshot& here = *rank.communicator;
      const SlotKey place{rank.process->file, here.slot, here.generation};
      Counts& counts = now[place];
      counts.functions = here.functions;
      counts.arrivals = here.arrivals.value_or(collector::ArrivalCounts{});
      const auto before = before_.find(place);
      const bool is_first = before == before_.end();
      if (!has_before_ || (is_first && !IsNew(here.created_realtime_ns))) continue;
      const Counts zeros;
      const Counts& old = is_first ? zeros : before->second;
      Compare(rank, communicator.key, old, counts, step);
      CompareRank(rank, communicator.key, old, counts, step);
    }
  }
  CompareLosses(node, step);
  if (has_before_ && step.seconds > 0) steps_.push_back(std::move(step));
  if (steps_.size() > kHistorySteps) steps_.pop_front();
  before_ = std::move(now);
  before_realtime_ns_ = node.taken_realtime_ns;
  before_monotonic_ns_ = monotonic_ns;
  has_before_ = true;
}

bool NodeHistory::IsNew(int64_t realtime_ns) const {
  return has_before_ && realtime_ns >= before_realtime_ns_ - kLatestSightNs;
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

void NodeHistory::CompareRank(const RankOnNode& rank, const collector::CommunicatorKey& key,
                              const Counts& before, const Counts& now, Step& step) {
  RankDelta difference;
  difference.arrivals = {
      .compared = Grown(before.arrivals.compared, now.arrivals.compared),
      .last = Grown(before.arrivals.last, now.arrivals.last),
      .lateness_ns = Grown(before.arrivals.lateness_ns, now.arrivals.lateness_ns),
      .estimated = Grown(before.arrivals.estimated, now.arrivals.estimated)};
  for (size_t i = 0; i < now.functions.size(); ++i) {
    if (!now.functions.IsInUse(i)) continue;
    AddTraffic(before.functions[i], now.functions[i], static_cast<Function>(i), difference.traffic);
  }
  if (difference.traffic.empty() && difference.arrivals == collector::ArrivalCounts{}) return;
  RankDelta* const sum = step.traffic + difference.traffic.size() > kHistoryTraffic
                             ? nullptr
                             : Room(step.ranks, {key, rank.communicator->rank}, kHistoryRanks);
  if (sum == nullptr) {
    ++left_out_;
    return;
  }
  step.traffic += difference.traffic.size();
  *sum += difference;
}

void NodeHistory::CompareLosses(const collector::NodeSnapshot& node, Step& step) {
  std::map<collector::FileKey, LossCounts> now;
  for (const collector::ProcessSnapshot& process : node.processes) {
    now[process.file] = process.losses;
    const auto before = losses_before_.find(process.file);
    const bool is_first = before == losses_before_.end();
    if (is_first && !IsNew(process.start_realtime_ns)) continue;
    for (size_t i = 0; i < process.losses.size(); ++i) {
      const uint64_t events = Grown(is_first ? 0 : before->second[i], process.losses[i]);
      if (events == 0) continue;
      if (step.losses.size() < kHistoryLosses) {
        step.losses.push_back({process.file, static_cast<Loss>(i), events});
      } else {
        ++left_out_;
      }
    }
  }
  losses_before_ = std::move(now);
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
    const auto found = step->ranks.find({communicator, rank});
    if (found == step->ranks.end()) continue;
    stretch.counts += found->second.arrivals;
  }
  return stretch;
}

RanksWindow NodeHistory::RecentRanks(double seconds, double until) const {
  RanksWindow window;
  double ago = 0;
  for (auto step = steps_.rbegin(); step != steps_.rend() && ago < seconds; ++step) {
    if (ago >= until) {
      window.seconds += step->seconds;
      for (const auto& [key, delta] : step->ranks) window.ranks[key] += delta;
    }
    ago += step->seconds;
  }
  return window;
}

std::vector<RankWaiting> NodeHistory::Waiting(
    size_t step, const collector::CommunicatorKey& communicator) const {
  std::vector<RankWaiting> ranks;
  double least = std::numeric_limits<double>::infinity();
  const auto& all = steps_[step].ranks;
  for (auto rank = all.lower_bound({communicator, 0});
       rank != all.end() && rank->first.first == communicator; ++rank) {
    double seconds = 0;
    bool is_known = false;
    for (const TrafficDelta& delta : rank->second.traffic) {
      if (TraitsOf(delta.function).is_point_to_point || delta.timed_operations == 0) continue;
      seconds += delta.BusySeconds();
      is_known = true;
    }
    if (!is_known) continue;
    ranks.push_back({.rank = rank->first.second, .in_collectives = seconds / Seconds(step)});
    least = std::min(least, ranks.back().in_collectives);
  }
  for (RankWaiting& rank : ranks) rank.transfer = least;
  return ranks;
}

}  // namespace nccl_exporter::exporter
