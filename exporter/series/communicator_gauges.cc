// SPDX-License-Identifier: Apache-2.0
#include "exporter/series/communicator_gauges.h"

#include <algorithm>
#include <array>

#include "exporter/series/group_sums.h"

namespace nccl_exporter::exporter {
namespace {

constexpr double kNsPerSecond = 1e9;

std::optional<double> If(bool is_known, double value) {
  return is_known ? std::optional(value) : std::nullopt;
}

std::optional<double> Started(const GroupMember& member) {
  const collector::CommunicatorSnapshot& c = *member.communicator;
  return static_cast<double>(c.started_sequence);
}

std::optional<double> Completed(const GroupMember& member) {
  const collector::CommunicatorSnapshot& c = *member.communicator;
  return If(c.completion_is_known, static_cast<double>(c.completed_sequence));
}

// A finalized communicator has nothing in flight, whatever was seen of it.
std::optional<double> InFlight(const GroupMember& member) {
  const collector::CommunicatorSnapshot& c = *member.communicator;
  return If(c.completion_is_known || c.is_closed, static_cast<double>(c.in_flight.size()));
}

// A quiet member has counts.
std::optional<double> Progress(const GroupMember& member) {
  return static_cast<double>(member.counts->progress);
}

template <std::optional<double> (*kValue)(const GroupMember&)>
std::optional<double> WhileQuiet(const GroupMember& member) {
  return IsQuiet(member) ? kValue(member) : std::nullopt;
}

constexpr std::array kGauges{
    CommunicatorGauge{Metric::kStartedSequence, Merge::kLowest, Started},
    CommunicatorGauge{Metric::kCompletedSequence, Merge::kLowest, Completed},
    CommunicatorGauge{Metric::kInFlight, Merge::kSum, InFlight},
    CommunicatorGauge{Metric::kStalledProgress, Merge::kSum, WhileQuiet<Progress>},
    CommunicatorGauge{Metric::kStalledStartedSequence, Merge::kLowest, WhileQuiet<Started>},
    CommunicatorGauge{Metric::kStalledCompletedSequence, Merge::kLowest, WhileQuiet<Completed>},
    CommunicatorGauge{Metric::kStalledInFlight, Merge::kSum, WhileQuiet<InFlight>},
    CommunicatorGauge{Metric::kUnseenOperations, Merge::kSum,
                      [](const GroupMember& member) {
                        const uint64_t unseen = member.communicator->unseen_operations;
                        return If(unseen != 0, static_cast<double>(unseen));
                      }},
    CommunicatorGauge{Metric::kLastProgress, Merge::kHighest,
                      [](const GroupMember& member) {
                        const int64_t last_ns = member.communicator->last_progress_realtime_ns;
                        return If(last_ns != 0, SecondsOfTime(last_ns));
                      }},
};

double Merged(Merge merge, double a, double b) {
  switch (merge) {
    case Merge::kLowest:
      return std::min(a, b);
    case Merge::kHighest:
      return std::max(a, b);
    case Merge::kSum:
      break;
  }
  return a + b;
}

}  // namespace

std::span<const CommunicatorGauge> CommunicatorGauges() { return kGauges; }

std::optional<double> ValueOf(const CommunicatorGauge& gauge,
                              std::span<const GroupMember* const> members) {
  std::optional<double> merged;
  for (const GroupMember* member : members) {
    const std::optional<double> value = gauge.value(*member);
    if (value) merged = merged ? Merged(gauge.merge, *merged, *value) : *value;
  }
  return merged;
}

bool IsQuiet(const GroupMember& member) {
  return member.counts != nullptr && member.counts->is_quiet;
}

const collector::InFlightOperation* OldestInFlight(std::span<const GroupMember* const> members) {
  const collector::InFlightOperation* oldest = nullptr;
  for (const GroupMember* member : members) {
    const collector::CommunicatorSnapshot& communicator = *member->communicator;
    if (!communicator.completion_is_known || communicator.in_flight.empty()) continue;
    const collector::InFlightOperation& first = communicator.in_flight.front();
    if (oldest == nullptr || first.start_realtime_ns < oldest->start_realtime_ns) oldest = &first;
  }
  return oldest;
}

bool IsLowest(const GroupMember& member) {
  return member.counts != nullptr && member.counts->node && member.counts->node->is_lowest;
}

std::optional<double> RanksOf(const SeriesGroup& group) {
  uint64_t ranks = 0;
  for (const GroupMember& member : group.members) {
    if (!member.is_replaced && IsLowest(member))
      ranks = std::max(ranks, member.communicator->ranks);
  }
  return If(ranks != 0, static_cast<double>(ranks));
}

double SecondsOfTime(int64_t realtime_ns) {
  constexpr int64_t kWholeSecond = 1000000000;
  return static_cast<double>(realtime_ns / kWholeSecond) +
         static_cast<double>(realtime_ns % kWholeSecond) / kNsPerSecond;
}

}  // namespace nccl_exporter::exporter
