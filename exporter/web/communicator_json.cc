// SPDX-License-Identifier: Apache-2.0
#include "exporter/web/communicator_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "exporter/findings/findings_json.h"
#include "exporter/findings/rank_view.h"
#include "exporter/findings/words.h"

namespace nccl_exporter::exporter {
namespace {

using Json = nlohmann::ordered_json;

// Maximum of listed operations in flight per rank, oldest first.
constexpr size_t kListedInFlight = 4;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// Means of one operation, in seconds. NaN where fewer than two ranks of this node were timed. The
// rank that is in collectives for the shortest time waits for nobody, so its time is the transfer,
// and what the others need beyond it is waiting.
struct MeanTimes {
  double transfer = kUnknown;
  double waiting = kUnknown;  // of the ranks of this node, on average
};

// Mean time of the rank's timed operations; NaN where none was timed.
double MeanSecondsOf(const RankDelta& rank, Function function) {
  double busy = 0;
  uint64_t operations = 0;
  for (const TrafficDelta& traffic : rank.traffic) {
    if (traffic.function != function) continue;
    busy += traffic.BusySeconds();
    operations += traffic.timed_operations;
  }
  return operations == 0 ? kUnknown : busy / static_cast<double>(operations);
}

MeanTimes MeanTimesOf(const CommunicatorOnNode& communicator, Function function,
                      const RanksWindow& recent) {
  double least = std::numeric_limits<double>::infinity(), sum = 0;
  size_t timed = 0;
  for (const RankOnNode& rank : communicator.ranks) {
    const auto found = recent.ranks.find({communicator.key, rank.communicator->rank});
    if (found == recent.ranks.end()) continue;
    const double mean = MeanSecondsOf(found->second, function);
    if (std::isnan(mean)) continue;
    least = std::min(least, mean);
    sum += mean;
    ++timed;
  }
  if (timed < 2) return {};
  return {.transfer = least, .waiting = sum / static_cast<double>(timed) - least};
}

// Null for a communicator with one rank on this node. Else its ranks, and for each of them the
// seconds of waiting per second at each step of the history; null where nothing was timed.
Json WaitingJson(const CommunicatorOnNode& communicator, const NodeHistory& history) {
  if (communicator.ranks.size() < 2) return nullptr;
  std::map<uint64_t, std::vector<Json>> waiting;  // by rank
  for (const RankOnNode& rank : communicator.ranks)
    waiting[rank.communicator->rank].assign(history.steps(), nullptr);
  for (size_t step = 0; step < history.steps(); ++step) {
    for (const RankWaiting& rank : history.Waiting(step, communicator.key)) {
      constexpr double kDigits = 1e4;  // charts show no more
      const auto found = waiting.find(rank.rank);
      if (found != waiting.end())
        found->second[step] = std::round(rank.waiting() * kDigits) / kDigits;
    }
  }
  Json ranks = Json::array(), steps = Json::array();
  for (auto& [rank, of_rank] : waiting) {
    ranks.push_back(rank);
    steps.push_back(std::move(of_rank));
  }
  return {{"ranks", std::move(ranks)}, {"steps", std::move(steps)}};
}

Json InFlightJson(const collector::CommunicatorSnapshot& communicator) {
  Json list = Json::array();
  for (const collector::InFlightOperation& operation : communicator.in_flight) {
    if (list.size() == kListedInFlight) break;
    const bool is_point_to_point = TraitsOf(operation.function).is_point_to_point;
    list.push_back({{"collective", TraitsOf(operation.function).name},
                    {"sequence", OrNull(!is_point_to_point, operation.sequence)},
                    {"peer", OrNull(operation.peer >= 0, operation.peer)},
                    {"bytes", operation.bytes},
                    {"start", TimeJson(operation.start_realtime_ns)}});
  }
  return list;
}

Json ArrivalsJson(const RankView& view) {
  if (!view.rank->communicator->arrivals) return nullptr;
  return {{"late", view.is_late},
          {"seconds", RoundedJson(view.recent.seconds)},
          {"compared", view.recent.arrivals.compared},
          {"last", view.recent.arrivals.last},
          {"mean_lateness_seconds", RoundedJson(view.MeanLatenessSeconds())}};
}

constexpr double kMostBytes = 1ull << 63;  // more take a forged segment

Json NetworkDirectionJson(NetworkDirection direction, const RankWindow& recent) {
  const collector::NetworkDirectionCounts& here =
      recent.network.directions[static_cast<size_t>(direction)];
  const std::optional<double> all_bytes = recent.AllBytes(direction);
  Json waits = Json::object();
  for (const CodeRow<NetworkState>& row : kNetworkStates) {
    if (const std::optional<uint64_t> wait_ns = here.WaitNs(direction, row.id))
      waits[std::string(row.name)] = RoundedJson(static_cast<double>(*wait_ns) / 1e9);
  }
  return {{"operations", here.operations},
          {"bytes", here.bytes},
          {"all_bytes", all_bytes ? Json(static_cast<uint64_t>(std::min(*all_bytes, kMostBytes)))
                                  : Json(nullptr)},
          {"wait_seconds", std::move(waits)}};
}

Json NetworkJson(const RankView& view) {
  const collector::CommunicatorSnapshot& here = *view.rank->communicator;
  if (!here.network) return nullptr;
  return {{"timed_share", RoundedJson(static_cast<double>(here.network_share_ppm) / kWholeDutyPpm)},
          {"seconds", RoundedJson(view.recent.seconds)},
          {"send", NetworkDirectionJson(NetworkDirection::kSend, view.recent)},
          {"recv", NetworkDirectionJson(NetworkDirection::kRecv, view.recent)}};
}

Json RankJson(const RankView& view) {
  const RankOnNode& rank = *view.rank;
  const collector::CommunicatorSnapshot& here = *rank.communicator;
  const bool is_known = here.completion_is_known;
  return {{"rank", here.rank},
          {"gpu", OrNull(here.gpu_index >= 0, here.gpu_index)},
          {"gpu_uuid", TextJson(here.gpu_uuid)},
          {"pid", rank.process->pid},
          {"host", TextJson(rank.process->NodeName())},
          {"alive", rank.process->is_alive},
          {"stopped", OrNull(rank.process->is_stopped)},
          {"global_rank", TextJson(rank.communicator->numbers.GlobalText())},
          {"started_sequence", here.started_sequence},
          {"completed_sequence", OrNull(is_known, here.completed_sequence)},
          {"behind", view.behind},
          {"in_flight_count", OrNull(is_known, here.in_flight.size())},
          {"in_flight", is_known ? InFlightJson(here) : Json::array()},
          {"unseen_operations", here.unseen_operations},
          {"last_progress", TimeJson(here.last_progress_realtime_ns)},
          {"timing_source", NameOf(here.timing_source)},
          {"timing_reason", NameOf(here.timing_reason)},
          {"drift_cause", here.drift_cause == DriftCause::kNone
                              ? Json(nullptr)
                              : Json(RowIn(kDriftCauses, here.drift_cause).name)},
          {"probation_launches", here.probation_launches},
          {"arrivals", ArrivalsJson(view)},
          {"network", NetworkJson(view)}};
}

// Arrays as long as history.times, and the heat map as triples of step, bin and operations.
Json HistoryJson(const collector::CommunicatorKey& key, Function function,
                 const NodeHistory& history) {
  Json operations = Json::array(), bytes = Json::array(), duration = Json::array(),
       bandwidth = Json::array();
  Json heat = Json::array();
  for (size_t step = 0; step < history.steps(); ++step) {
    static const ActivityDelta kNothing;
    const ActivityDelta* const found = history.At(step, key, function);
    const ActivityDelta& activity = found == nullptr ? kNothing : *found;
    operations.push_back(
        RoundedJson(static_cast<double>(activity.operations) / history.Seconds(step)));
    bytes.push_back(RoundedJson(static_cast<double>(activity.bytes) / history.Seconds(step)));
    duration.push_back(RoundedJson(activity.MeanDurationSeconds()));
    bandwidth.push_back(RoundedJson(activity.BusBandwidth()));
    for (const auto& [bin, count] : activity.durations) heat.push_back({step, bin, count});
  }
  return {{"operations_per_second", std::move(operations)},
          {"bytes_per_second", std::move(bytes)},
          {"duration_seconds", std::move(duration)},
          {"bus_bytes_per_second", std::move(bandwidth)},
          {"heat", std::move(heat)}};
}

Json CollectiveJson(const CommunicatorOnNode& of, Function function, const NodeHistory& history,
                    const RanksWindow& recent_ranks) {
  collector::SizeClassSnapshot total;
  size_t ranks = 0;
  for (const RankOnNode& rank : of.ranks) {
    if (rank.communicator->functions.IsInUse(static_cast<size_t>(function))) ++ranks;
    for (const collector::SizeClassSnapshot& size :
         rank.communicator->functions[static_cast<size_t>(function)].sizes) {
      total += size;
    }
  }
  if (total.operations == 0) return nullptr;
  const HistoryWindow recent = history.Recent(of.key, function, kRecentSeconds);
  const MeanTimes means = MeanTimesOf(of, function, recent_ranks);
  const auto rate = [&](uint64_t count) {
    return RoundedJson(static_cast<double>(count) / recent.seconds);
  };
  return {{"collective", TraitsOf(function).name},
          {"used_by", ranks},
          {"operations", total.operations},
          {"bytes", total.bytes},
          {"timed_operations", total.timed_operations},
          {"busy_seconds", RoundedJson(static_cast<double>(total.busy_ns) / 1e9)},
          {"recent",
           {{"seconds", RoundedJson(recent.seconds)},
            {"operations_per_second", rate(recent.activity.operations)},
            {"bytes_per_second", rate(recent.activity.bytes)},
            {"duration_seconds", RoundedJson(recent.activity.MeanDurationSeconds())},
            {"transfer_seconds", RoundedJson(means.transfer)},
            {"waiting_seconds", RoundedJson(means.waiting)},
            {"bus_bytes_per_second", RoundedJson(recent.activity.BusBandwidth())}}},
          {"history", HistoryJson(of.key, function, history)}};
}

// Ranks that must be on this node and are not seen: those without room, or missing ones. Known only
// if all ranks of the communicator are on this node.
Json UnseenJson(const CommunicatorOnNode& of, bool without_room) {
  const collector::CommunicatorSnapshot& any = *of.ranks.front().communicator;
  if (any.nodes != 1 || any.ranks == 0) return nullptr;
  if (of.may_lack_room != without_room) return Json::array();
  return MissingOf(of.ranks).first;
}

}  // namespace

nlohmann::ordered_json CommunicatorJson(const CommunicatorOnNode& of, const NodeHistory& history,
                                        const RanksWindow& recent_ranks,
                                        const Judgement& judgement) {
  const RankOnNode& any = of.ranks.front();
  Json ranks = Json::array(), collectives = Json::array();
  for (const RankOnNode& rank : of.ranks)
    ranks.push_back(RankJson(RankViewOf(of, rank, 0, history, judgement)));
  for (size_t i = 0; i < kFunctionCount; ++i) {
    Json collective = CollectiveJson(of, static_cast<Function>(i), history, recent_ranks);
    if (!collective.is_null()) collectives.push_back(std::move(collective));
  }
  return {{"comm", fmt::format("{:016x}", of.key.id)},
          {"comm_name", TextJson(any.communicator->name)},
          {"uid", of.key.uid},
          {"nccl_job", TextJson(of.key.job)},
          {"slurm_job_id", TextJson(any.process->Identity("SLURM_JOB_ID"))},
          {"namespace", TextJson(of.key.name_space)},
          {"ranks", OrNull(any.communicator->ranks != 0, any.communicator->ranks)},
          {"nodes", OrNull(any.communicator->nodes != 0, any.communicator->nodes)},
          {"missing_ranks", UnseenJson(of, false)},
          {"no_room_ranks", UnseenJson(of, true)},
          {"local_ranks", std::move(ranks)},
          {"waiting", WaitingJson(of, history)},
          {"collectives", std::move(collectives)}};
}

}  // namespace nccl_exporter::exporter
