// SPDX-License-Identifier: Apache-2.0
#include "exporter/ledger/node_history.h"

#include <algorithm>
#include <limits>

#include "exporter/ledger/fair_shares.h"

namespace nccl_exporter::exporter {
namespace {

// A counter that has decreased is another one's: all of it is new.
uint64_t Grown(uint64_t before, uint64_t now) { return now >= before ? now - before : now; }

constexpr size_t BinOf(size_t bucket) {
  return bucket == 0 ? 0 : std::min((bucket - 1) / kBucketsPerBin + 1, kDurationBins - 1);
}

std::vector<FunctionCounts> CountsOf(const collector::FunctionSnapshots& functions) {
  std::vector<FunctionCounts> all;
  for (size_t i = 0; i < functions.size(); ++i) {
    if (!functions.IsInUse(i)) continue;
    const collector::FunctionSnapshot& function = functions[i];
    FunctionCounts& counts = all.emplace_back();
    counts.function = static_cast<Function>(i);
    counts.sizes = function.sizes;
    for (size_t bucket = 0; bucket < function.duration.size(); ++bucket) {
      counts.bins[BinOf(bucket)] += static_cast<uint32_t>(function.duration[bucket]);
    }
  }
  return all;
}

// Zeros where the function was not in use.
const FunctionCounts& Of(Function function, const std::vector<FunctionCounts>& counts) {
  static const FunctionCounts kUnused;
  const auto found = std::ranges::find(counts, function, &FunctionCounts::function);
  return found == counts.end() ? kUnused : *found;
}

void AddDurations(const FunctionCounts& before, const FunctionCounts& now,
                  ActivityDelta& activity) {
  std::array<uint64_t, kDurationBins> bins{};
  for (const BinCount& count : activity.durations) bins[count.bin] = count.operations;
  for (size_t bin = 0; bin < bins.size(); ++bin) {
    bins[bin] += static_cast<uint32_t>(now.bins[bin] - before.bins[bin]);
  }
  activity.durations.clear();
  for (size_t bin = 0; bin < bins.size(); ++bin) {
    if (bins[bin] == 0) continue;
    const auto count = static_cast<uint32_t>(std::min<uint64_t>(bins[bin], kMostOfBin));
    activity.durations.push_back({static_cast<uint32_t>(bin) & 0x7f, count & kMostOfBin});
  }
}

collector::SizeClassSnapshot Difference(const collector::SizeClassSnapshot& before,
                                        const collector::SizeClassSnapshot& now) {
  return {.operations = Grown(before.operations, now.operations),
          .bytes = Grown(before.bytes, now.bytes),
          .timed_operations = Grown(before.timed_operations, now.timed_operations),
          .timed_bytes = Grown(before.timed_bytes, now.timed_bytes),
          .busy_ns = Grown(before.busy_ns, now.busy_ns)};
}

// As PromQL's rate() reads the series: the first value of a count is no increase.
void AddSteps(const StepCounts& before, const StepCounts& now, RankDelta& rank) {
  rank.steps = Grown(before.steps, now.steps);
  for (const auto& [kind, wait_ns] : now.waits_ns) {
    const auto old = before.waits_ns.find(kind);
    if (old != before.waits_ns.end()) rank.step_waits_ns[kind] = Grown(old->second, wait_ns);
  }
}

collector::NetworkCounts Difference(const collector::NetworkCounts& before,
                                    const collector::NetworkCounts& now) {
  collector::NetworkCounts grown;
  for (size_t i = 0; i < grown.directions.size(); ++i) {
    const collector::NetworkDirectionCounts& old = before.directions[i];
    const collector::NetworkDirectionCounts& counts = now.directions[i];
    for (size_t state = 0; state < counts.wait_ns.size(); ++state)
      grown.directions[i].wait_ns[state] = Grown(old.wait_ns[state], counts.wait_ns[state]);
    grown.directions[i].bytes = Grown(old.bytes, counts.bytes);
    grown.directions[i].operations = Grown(old.operations, counts.operations);
  }
  return grown;
}

collector::NetworkBusBytes Difference(const collector::NetworkBusBytes& before,
                                      const collector::NetworkBusBytes& now) {
  collector::NetworkBusBytes grown;
  for (size_t i = 0; i < grown.all.size(); ++i) {
    grown.all[i] = Grown(before.all[i], now.all[i]);
    grown.timed[i] = Grown(before.timed[i], now.timed[i]);
  }
  return grown;
}

}  // namespace

ActivityDelta& ActivityDelta::operator+=(const ActivityDelta& more) {
  SizeClassSnapshot::operator+=(more);
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

RankDelta& RankDelta::operator+=(const RankDelta& more) {
  arrivals += more.arrivals;
  network += more.network;
  network_bus_bytes += more.network_bus_bytes;
  steps += more.steps;
  for (const auto& [kind, wait_ns] : more.step_waits_ns) step_waits_ns[kind] += wait_ns;
  for (const TrafficDelta& delta : more.traffic) {
    const auto found = std::ranges::find_if(traffic, [&](const TrafficDelta& here) {
      return here.function == delta.function && here.size_class == delta.size_class;
    });
    if (found == traffic.end()) {
      traffic.push_back(delta);
    } else {
      *found += delta;
    }
  }
  return *this;
}

void NodeHistory::Record(const Book& book, int64_t monotonic_ns) {
  static const Counts kNothing;
  const collector::NodeSnapshot& node = *book.node;
  const auto now = std::make_shared<Look>();
  now->realtime_ns = node.taken_realtime_ns;
  now->monotonic_ns = monotonic_ns;
  const auto step = std::make_shared<Step>();
  step->end_realtime_ns = node.taken_realtime_ns;
  if (before_) step->seconds = static_cast<double>(monotonic_ns - before_->monotonic_ns) / 1e9;
  for (const CommunicatorOnNode& communicator : CommunicatorsOnNode(node)) {
    const SharedKey key = Share(communicator.key);
    for (const RankOnNode& rank : communicator.ranks) {
      const collector::CommunicatorSnapshot& here = *rank.communicator;
      const SlotKey place{rank.process->file, here.slot, here.generation};
      Counts& counts = now->counts[place];
      counts.functions = CountsOf(here.functions);
      counts.arrivals = here.arrivals.value_or(collector::ArrivalCounts{});
      counts.network = here.network.value_or(collector::NetworkCounts{});
      counts.network_bus_bytes = here.network_bus_bytes.value_or(collector::NetworkBusBytes{});
      if (const RankCounts* const of_book = book.Of(*rank.process, here))
        counts.steps = of_book->steps;
      if (!before_) continue;
      const auto before = before_->counts.find(place);
      const bool is_first = before == before_->counts.end();
      if (is_first && !IsNew(here.created_realtime_ns)) continue;
      Compare(rank, key, is_first ? kNothing : before->second, counts, *step);
    }
  }
  CompareLosses(node, *now, *step);
  Fit(*step);
  if (step->seconds > 0) steps_.push_back(step);
  if (steps_.size() > kHistorySteps) steps_.pop_front();
  before_ = now;
}

NodeHistory::SharedKey NodeHistory::Share(const collector::CommunicatorKey& key) const {
  if (!steps_.empty()) {
    const auto& ranks = steps_.back()->ranks;
    const auto found = ranks.lower_bound(std::pair(&key, uint64_t{0}));
    if (found != ranks.end() && *found->first.first == key) return found->first.first;
  }
  return std::make_shared<const collector::CommunicatorKey>(key);
}

bool NodeHistory::IsNew(int64_t realtime_ns) const {
  return before_ && realtime_ns >= before_->realtime_ns - kLatestSightNs;
}

void NodeHistory::Compare(const RankOnNode& rank, const SharedKey& key, const Counts& before,
                          const Counts& now, Step& step) {
  RankDelta difference;
  difference.arrivals = {
      .compared = Grown(before.arrivals.compared, now.arrivals.compared),
      .last = Grown(before.arrivals.last, now.arrivals.last),
      .lateness_ns = Grown(before.arrivals.lateness_ns, now.arrivals.lateness_ns)};
  difference.network = Difference(before.network, now.network);
  difference.network_bus_bytes = Difference(before.network_bus_bytes, now.network_bus_bytes);
  if (before.steps && now.steps) AddSteps(*before.steps, *now.steps, difference);
  for (const FunctionCounts& counts : now.functions) {
    const Function function = counts.function;
    const FunctionCounts& old = Of(function, before.functions);
    ActivityDelta activity;
    for (size_t size = 0; size < counts.sizes.size(); ++size) {
      if (old.sizes[size] == counts.sizes[size]) continue;
      const TrafficDelta delta{Difference(old.sizes[size], counts.sizes[size]), function,
                               static_cast<uint8_t>(size)};
      difference.traffic.push_back(delta);
      activity += ActivityDelta{
          delta,
          BusBytes(function, delta.timed_bytes, static_cast<uint32_t>(rank.communicator->ranks)),
          {}};
    }
    if (activity.operations == 0 && activity.timed_operations == 0) continue;
    ActivityDelta& sum = step.activities[{key, function}];
    sum += activity;
    AddDurations(old, counts, sum);
  }
  if (difference.traffic.empty() && difference.arrivals == collector::ArrivalCounts{} &&
      difference.network == collector::NetworkCounts{})
    return;
  step.ranks[{key, rank.communicator->rank}] += difference;
}

void NodeHistory::Fit(Step& step) {
  const auto one = [](const auto&) { return size_t{1}; };
  const auto user_of_key = [](const auto& entry) { return entry.first.first->uid; };
  const auto user_of_loss = [](const LossDelta& loss) { return loss.uid; };
  const auto traffic = [](const auto& entry) { return entry.second.traffic.size(); };
  left_out_ += KeepFairShares(step.activities, kHistorySeries, user_of_key, one);
  left_out_ += KeepFairShares(step.ranks, kHistoryRanks, user_of_key, one);
  left_out_ += KeepFairShares(step.ranks, kHistoryTraffic, user_of_key, traffic);
  left_out_ += KeepFairShares(step.losses, kHistoryLosses, user_of_loss, one);
  step.compared = ComparedIn(step);
  for (auto& [key, activity] : step.activities) activity.durations.shrink_to_fit();
  for (auto& [key, rank] : step.ranks) rank.traffic.shrink_to_fit();
}

// Compared operations of the rank with the most in each communicator, summed.
uint64_t NodeHistory::ComparedIn(const Step& step) {
  uint64_t sum = 0, most = 0;
  const collector::CommunicatorKey* last = nullptr;
  for (const auto& [key, delta] : step.ranks) {
    if (last != key.first.get()) {
      sum += most;
      most = 0;
    }
    most = std::max(most, delta.arrivals.compared);
    last = key.first.get();
  }
  return sum + most;
}

void NodeHistory::CompareLosses(const collector::NodeSnapshot& node, Look& now, Step& step) const {
  for (const collector::ProcessSnapshot& process : node.processes) {
    now.losses[process.file] = process.losses;
    if (!before_) continue;
    const auto before = before_->losses.find(process.file);
    const bool is_first = before == before_->losses.end();
    if (is_first && !IsNew(process.start_realtime_ns)) continue;
    for (size_t i = 0; i < process.losses.size(); ++i) {
      const uint64_t events = Grown(is_first ? 0 : before->second[i], process.losses[i]);
      if (events != 0)
        step.losses.push_back({process.file, process.uid, static_cast<Loss>(i), events});
    }
  }
}

const ActivityDelta* NodeHistory::At(size_t step, const collector::CommunicatorKey& communicator,
                                     Function function) const {
  const auto& activities = steps_[step]->activities;
  const auto found = activities.find(std::pair(&communicator, function));
  return found == activities.end() ? nullptr : &found->second;
}

template <typename Visit>
double NodeHistory::ForNewest(double seconds, Visit visit) const {
  double sum = 0;
  for (auto step = steps_.rbegin(); step != steps_.rend() && sum < seconds; ++step) {
    visit(**step);
    sum += (*step)->seconds;
  }
  return sum;
}

HistoryWindow NodeHistory::Recent(const collector::CommunicatorKey& communicator, Function function,
                                  double seconds) const {
  HistoryWindow stretch;
  stretch.seconds = ForNewest(seconds, [&](const Step& step) {
    const auto found = step.activities.find(std::pair(&communicator, function));
    if (found != step.activities.end()) stretch.activity += found->second;
  });
  return stretch;
}

RankWindow NodeHistory::RecentRank(const collector::CommunicatorKey& communicator, uint64_t rank,
                                   double seconds) const {
  RankWindow stretch;
  stretch.seconds = ForNewest(seconds, [&](const Step& step) {
    const auto found = step.ranks.find(std::pair(&communicator, rank));
    if (found == step.ranks.end()) return;
    stretch.arrivals += found->second.arrivals;
    stretch.network += found->second.network;
    stretch.bus_bytes += found->second.network_bus_bytes;
  });
  return stretch;
}

std::optional<double> RankWindow::AllBytes(NetworkDirection direction) const {
  const auto i = static_cast<size_t>(direction);
  if (bus_bytes.timed[i] == 0) return std::nullopt;
  return static_cast<double>(network.directions[i].bytes) * static_cast<double>(bus_bytes.all[i]) /
         static_cast<double>(bus_bytes.timed[i]);
}

RanksWindow NodeHistory::RecentRanks(double seconds) const {
  RanksWindow window;
  window.seconds = ForNewest(seconds, [&](const Step& step) {
    for (const auto& [key, delta] : step.ranks) window.ranks[{*key.first, key.second}] += delta;
  });
  return window;
}

std::map<JobKey, uint64_t> NodeHistory::RecentOperations(double seconds) const {
  std::map<JobKey, uint64_t> operations;
  ForNewest(seconds, [&](const Step& step) {
    // The ranks of a communicator follow each other.
    const collector::CommunicatorKey* last = nullptr;
    uint64_t* of_job = nullptr;
    for (const auto& [key, delta] : step.ranks) {
      if (last != key.first.get()) of_job = &operations[JobKeyOf(*key.first)];
      last = key.first.get();
      for (const TrafficDelta& traffic : delta.traffic) *of_job += traffic.operations;
    }
  });
  return operations;
}

uint64_t NodeHistory::ComparedOperations() const {
  uint64_t sum = 0;
  for (const auto& step : steps_) sum += step->compared;
  return sum;
}

std::vector<RankWaiting> NodeHistory::Waiting(
    size_t step, const collector::CommunicatorKey& communicator) const {
  std::vector<RankWaiting> ranks;
  double least = std::numeric_limits<double>::infinity();
  const auto& all = steps_[step]->ranks;
  for (auto rank = all.lower_bound(std::pair(&communicator, uint64_t{0}));
       rank != all.end() && *rank->first.first == communicator; ++rank) {
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
