// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/late/bandwidth_past.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "exporter/findings/late/busy_rates.h"
#include "exporter/findings/words.h"
#include "exporter/ledger/fair_shares.h"
#include "exporter/ledger/local_communicators.h"

namespace nccl_exporter::exporter {
namespace {

// Latency dominates smaller messages. The rules compare the same size classes.
constexpr uint64_t kLargeBytes = 16777216;
// Quantile of the past: a job that alternates between fast and slow phases is not slow in the slow
// one.
constexpr double kLowerQuartile = 0.25;
// Relative difference of message sizes below which bandwidths are compared.
constexpr double kSameSize = 0.1;
// Share of the past that must exist: the first minutes of a job, which warm up, are not compared.
constexpr double kPastShare = 0.5;
// A fault that lasts for this many times the past is none: the job does something else, and the
// past begins again.
constexpr int kLongestFault = 3;

double GigabytesPerSecond(double bytes_per_second) { return bytes_per_second / 1e9; }

std::string SizeText(uint8_t size_class) {
  return fmt::format("{} MiB", kSizeClassBounds[size_class] >> 20);
}

}  // namespace

std::map<BandwidthPast::Key, BandwidthPast::Transfer> BandwidthPast::NewestWindow(
    const NodeHistory& history) const {
  std::map<Key, Transfer> newest;
  std::map<Key, std::pair<uint64_t, uint64_t>> bytes_and_operations;
  const RanksWindow window = history.RecentRanks(Seconds(times_.window));
  std::map<collector::CommunicatorKey, uint64_t> ranks_here;
  for (const auto& [rank, delta] : window.ranks) ++ranks_here[rank.first];
  for (const auto& [rank, delta] : window.ranks) {
    const collector::CommunicatorKey& communicator = rank.first;
    if (ranks_here[communicator] < communicator.ranks) continue;
    for (const TrafficDelta& traffic : delta.traffic) {
      if (TraitsOf(traffic.function).is_point_to_point ||
          kSizeClassBounds[traffic.size_class] < kLargeBytes)
        continue;
      const Key key{communicator, traffic.function, traffic.size_class};
      auto& [bytes, operations] = bytes_and_operations[key];
      bytes += traffic.bytes;
      operations += traffic.operations;
      if (traffic.busy_ns == 0) continue;
      const double bus_bytes = BusBytes(traffic.function, traffic.timed_bytes,
                                        static_cast<uint32_t>(communicator.ranks));
      double& fastest = newest[key].bandwidth;
      fastest = std::max(fastest, bus_bytes / (static_cast<double>(traffic.busy_ns) / 1e9));
    }
  }
  for (auto& [key, transfer] : newest) {
    const auto& [bytes, operations] = bytes_and_operations[key];
    if (operations != 0)
      transfer.message_bytes = static_cast<double>(bytes) / static_cast<double>(operations);
  }
  return newest;
}

void BandwidthPast::Follow(const std::map<Key, Transfer>& newest) {
  std::vector<Key> wanted;  // those that are followed already come first
  for (const auto& [key, past] : pasts_) wanted.push_back(key);
  for (const auto& [key, transfer] : newest) {
    if (!pasts_.contains(key)) wanted.push_back(key);
  }
  std::map<uint64_t, size_t> left;  // by user
  for (const Key& key : wanted) ++left[std::get<0>(key).uid];
  for (auto& [uid, need] : left) need = std::min(need, kMostPastsPerUser);
  left = EqualParts(left, kMostPasts);
  for (auto& [uid, part] : left) part = std::min(part, kMostPastsPerUser);
  for (const Key& key : wanted) {
    size_t& room = left[std::get<0>(key).uid];
    if (room == 0) {
      ++left_out_;
      pasts_.erase(key);
    } else {
      --room;
      pasts_.try_emplace(key);
    }
  }
}

void BandwidthPast::Record(const NodeHistory& history, int64_t realtime_ns, int64_t monotonic_ns) {
  if (next_judgement_ns_ == 0) next_judgement_ns_ = monotonic_ns;
  if (monotonic_ns < next_judgement_ns_) return;
  const int64_t interval = times_.interval.count();
  next_judgement_ns_ += ((monotonic_ns - next_judgement_ns_) / interval + 1) * interval;

  std::map<Key, Transfer> newest = NewestWindow(history);
  Follow(newest);
  const auto most = static_cast<size_t>(times_.history / times_.interval + 1);
  for (auto& [key, past] : pasts_) {
    const auto found = newest.find(key);
    past.transfers.push_back(found == newest.end() ? Transfer{} : found->second);
    if (past.transfers.size() > most) past.transfers.pop_front();
    Judge(past, realtime_ns, monotonic_ns);
  }
  std::erase_if(pasts_, [](const auto& entry) {
    return std::ranges::all_of(entry.second.transfers,
                               [](const Transfer& transfer) { return transfer.bandwidth == 0; });
  });
}

BandwidthPast::Transfer BandwidthPast::Baseline(const Past& past) const {
  const auto newest = static_cast<size_t>(times_.arrivals_window() / times_.interval);
  const auto expected =
      static_cast<double>((times_.history - times_.arrivals_window()) / times_.interval);
  std::vector<double> bandwidths;
  double message_bytes = 0;
  for (size_t i = 0; i + newest < past.transfers.size(); ++i) {
    if (past.transfers[i].bandwidth == 0) continue;
    bandwidths.push_back(past.transfers[i].bandwidth);
    message_bytes += past.transfers[i].message_bytes;
  }
  const auto count = static_cast<double>(bandwidths.size());
  if (bandwidths.empty() || count < kPastShare * expected) return {};
  return {.bandwidth = Quantile(kLowerQuartile, std::move(bandwidths)),
          .message_bytes = message_bytes / count};
}

void BandwidthPast::Judge(Past& past, int64_t realtime_ns, int64_t monotonic_ns) const {
  const Transfer& now = past.transfers.back();
  if (now.bandwidth == 0) return;  // nothing was transferred
  const Transfer before = past.is_low ? past.before : Baseline(past);
  const bool is_low =
      now.bandwidth < times_.bandwidth_ratio * before.bandwidth &&
      std::abs(now.message_bytes - before.message_bytes) < kSameSize * before.message_bytes;
  if (!is_low) {
    past.is_low = past.is_degraded = false;
    return;
  }
  if (!past.is_low) {
    past.is_low = true;
    past.before = before;
    past.low_since_realtime_ns = realtime_ns;
    past.low_since_monotonic_ns = monotonic_ns;
  }
  const int64_t low_ns = monotonic_ns - past.low_since_monotonic_ns;
  past.is_degraded = low_ns >= times_.hold.count();
  if (low_ns <= kLongestFault * times_.history.count()) return;
  past.is_low = past.is_degraded = false;
  past.transfers.clear();
}

std::vector<Finding> BandwidthPast::Findings(const collector::NodeSnapshot& node) const {
  const auto is_degraded = [](const auto& entry) { return entry.second.is_degraded; };
  if (std::ranges::none_of(pasts_, is_degraded)) return {};
  const std::vector<CommunicatorOnNode> communicators = CommunicatorsOnNode(node);
  const CommunicatorsByKey by_key = ByKey(communicators);
  std::vector<Finding> findings;
  for (const auto& [key, past] : pasts_) {
    if (!past.is_degraded) continue;
    const auto& [communicator, function, size_class] = key;
    const auto found = by_key.find(communicator);
    if (found == by_key.end()) continue;
    const RankOnNode& rank = found->second->ranks.front();
    // The newest value; an idle minute has none.
    const auto newest = std::ranges::find_if(past.transfers.rbegin(), past.transfers.rend(),
                                             [](const Transfer& one) { return one.bandwidth > 0; });
    if (newest == past.transfers.rend()) continue;
    const double share = newest->bandwidth / past.before.bandwidth;
    Finding finding =
        FindingAbout(FindingKind::kBandwidthDegraded, Severity::kWarning, communicator, rank);
    finding.since_realtime_ns = past.low_since_realtime_ns;
    finding.headline = fmt::format(
        "{} of {} and more in {} of {} has {:.0f} % of its former bandwidth since {}, on every "
        "rank of this node.",
        TraitsOf(function).name, SizeText(size_class),
        CommunicatorText(communicator.id, rank.communicator->name), finding.job, 100 * share,
        ClockText(finding.since_realtime_ns));
    finding.cost = fmt::format("these transfers take {:.1f} times as long", 1 / share);
    finding.evidence = {
        {"bus bandwidth now", fmt::format("{:.1f} GB/s", GigabytesPerSecond(newest->bandwidth))},
        {"before", fmt::format("{:.1f} GB/s", GigabytesPerSecond(past.before.bandwidth))},
        {"mean message", fmt::format("{:.1f} MiB", newest->message_bytes / (1 << 20))}};
    finding.next =
        "Check the links of its nodes, and whether other jobs on the same links are slower, too.";
    finding.runbook = "NCCLBandwidthDegraded";
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace nccl_exporter::exporter
