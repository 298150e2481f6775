// SPDX-License-Identifier: Apache-2.0
#include "exporter/web/waiting_json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>
#include <vector>

namespace nccl_exporter::exporter {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

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

}  // namespace

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
  if (timed < 2) return {.transfer = kUnknown, .waiting = kUnknown};
  return {.transfer = least, .waiting = sum / static_cast<double>(timed) - least};
}

nlohmann::ordered_json WaitingJson(const CommunicatorOnNode& communicator,
                                   const NodeHistory& history) {
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

}  // namespace nccl_exporter::exporter
