// SPDX-License-Identifier: Apache-2.0
#include "simulator/workload/conditions.h"

#include <algorithm>
#include <utility>

#include "simulator/workload/hash_random.h"
#include "simulator/workload/thread_step.h"

namespace nccl_exporter::sim {
namespace {

enum Purpose : uint64_t { kPlace, kMoment, kSpike, kVariation, kChoice };

constexpr uint64_t kMovingOneIn = 8;  // ranks

bool IsOfAdapter(IncidentKind kind) {
  return kind == IncidentKind::kSlowAdapter || kind == IncidentKind::kSlowReceiver ||
         kind == IncidentKind::kSlowFlush;
}

}  // namespace

Conditions::Conditions(std::vector<Incident> incidents, const ClusterShape& shape, uint64_t seed,
                       int64_t period_ns)
    : incidents_(std::move(incidents)), shape_(shape), seed_(seed), period_ns_(period_ns) {}

void Conditions::BeginStep(int64_t step, int64_t began_ns) {
  step_ = step;
  began_before_ns_ = std::exchange(began_ns_, began_ns);
}

int64_t Conditions::LateNs(int rank) const {
  double late_ns = 0;
  for (const Incident& incident : incidents_) {
    if (!incident.Concerns(rank, shape_)) continue;
    const double seconds_ns = incident[Setting::kSeconds] * 1e9;
    const double strength = incident.Strength(began_ns_);
    if (incident.kind == IncidentKind::kSlowRank) {
      late_ns += strength * incident[Setting::kPercent] / 100 * static_cast<double>(period_ns_);
    } else if (incident.kind == IncidentKind::kPause) {
      late_ns += incident.StrikesBetween(began_before_ns_, began_ns_) > 0 ? seconds_ns : 0;
    } else if (incident.kind == IncidentKind::kSpikes && strength > 0) {
      late_ns +=
          Fraction(HashRandom(seed_, step_, rank, kSpike)) < incident[Setting::kPercent] / 100
              ? seconds_ns
              : 0;
    }
  }
  return static_cast<int64_t>(late_ns);
}

double Conditions::ComputeShare(const Incident& incident, int rank) const {
  const double share = incident.Strength(began_ns_) * incident[Setting::kPercent] / 100;
  const double variation = Fraction(HashRandom(seed_, step_, rank, kVariation));
  switch (incident.kind) {
    case IncidentKind::kSlowGpu:
    case IncidentKind::kSlowNode:
    case IncidentKind::kUneven:
      return share;
    case IncidentKind::kMoving: {
      // Load moves on: a rank that is drawn twice in a row has it the first time only.
      const int64_t every_ns = std::max<int64_t>(1, Incident::Ns(incident[Setting::kEvery]));
      const auto is_drawn = [&](int64_t turn) {
        return HashRandom(seed_, turn, rank, kChoice) % kMovingOneIn == 0;
      };
      const int64_t turn = began_ns_ / every_ns;
      return is_drawn(turn) && !is_drawn(turn - 1) ? share : 0;
    }
    case IncidentKind::kVarying:
      return share * variation;
    case IncidentKind::kWarmUp: {
      const double left =
          1 - static_cast<double>(began_ns_) / 1e9 / std::max(1e-9, incident[Setting::kUntil]);
      return share * std::max(0.0, left) * (1 + variation) / 2;
    }
    default:
      return 0;
  }
}

int64_t Conditions::ExtraComputeNs(int rank) const {
  double share = 0;
  for (const Incident& incident : incidents_) {
    if (incident.Concerns(rank, shape_)) share += ComputeShare(incident, rank);
  }
  return static_cast<int64_t>(share * static_cast<double>(period_ns_));
}

bool Conditions::Spans(const Communicator& communicator, const Incident& incident) const {
  const auto has_node = [&](int node) {
    return std::any_of(communicator.members.begin(), communicator.members.end(),
                       [&](int rank) { return shape_.NodeOf(rank) == node; });
  };
  return has_node(incident.node()) && has_node(incident.to());
}

double Conditions::TransferTimes(const Communicator& communicator) const {
  double times = 1;
  for (const Incident& incident : incidents_) {
    if (incident.kind != IncidentKind::kSlowLink || !Spans(communicator, incident)) continue;
    times *= TimesNow(incident);
  }
  return times;
}

double Conditions::TimesNow(const Incident& incident) const {
  return 1 + (incident[Setting::kTimes] - 1) * incident.Strength(began_ns_);
}

double Conditions::AdapterTimes(int rank) const {
  double times = 1;
  for (const Incident& incident : incidents_) {
    if (IsOfAdapter(incident.kind) && incident.rank() == rank) times *= TimesNow(incident);
  }
  return times;
}

bool Conditions::HasSlowHops() const {
  return std::any_of(incidents_.begin(), incidents_.end(), [](const Incident& incident) {
    return incident.kind == IncidentKind::kSlowLink || IsOfAdapter(incident.kind);
  });
}

// Whether data go between the two nodes of the link, in either direction.
bool Conditions::Crosses(const Incident& link, int sender, int receiver) const {
  const std::pair nodes(shape_.NodeOf(sender), shape_.NodeOf(receiver));
  return nodes == std::pair(link.node(), link.to()) || nodes == std::pair(link.to(), link.node());
}

bool Conditions::RingCrosses(const Communicator& communicator, const Incident& link) const {
  for (int rank = 0; rank < communicator.ranks(); ++rank) {
    const int next = RingNeighbour(communicator, rank, true);
    if (Crosses(link, communicator.members[static_cast<size_t>(rank)],
                communicator.members[static_cast<size_t>(next)]))
      return true;
  }
  return false;
}

HopTimes Conditions::HopOf(const Communicator& communicator, int sender, int receiver) const {
  const int from = communicator.members[static_cast<size_t>(sender)];
  const int to = communicator.members[static_cast<size_t>(receiver)];
  HopTimes hop;
  for (const Incident& incident : incidents_) {
    const double times = TimesNow(incident);
    const bool concerns_receiver = incident.rank() == to;
    if (incident.kind == IncidentKind::kSlowAdapter &&
        (incident.rank() == from || concerns_receiver))
      hop.wire *= times;
    if (incident.kind == IncidentKind::kSlowReceiver && concerns_receiver) hop.receiver *= times;
    if (incident.kind == IncidentKind::kSlowFlush && concerns_receiver) hop.flush *= times;
    if (incident.kind == IncidentKind::kSlowLink && Spans(communicator, incident) &&
        (Crosses(incident, from, to) || !RingCrosses(communicator, incident)))
      hop.wire *= times;
  }
  return hop;
}

// In the step in which it strikes, only from a group of the seed's choice on.
bool Conditions::HasStruck(const Incident& incident, size_t group, size_t groups) const {
  if (began_ns_ < incident.from_ns()) return false;
  if (step_ > 0 && began_before_ns_ >= incident.from_ns()) return true;
  return group >= HashRandom(seed_, incident.from_ns(), kPlace) % groups;
}

bool Conditions::IsCalled(size_t group, size_t groups) const {
  return group + 1 == groups ||
         std::none_of(incidents_.begin(), incidents_.end(), [&](const Incident& incident) {
           return incident.kind == IncidentKind::kEvaluation && incident.Strength(began_ns_) > 0;
         });
}

bool Conditions::IsMissed(int rank, size_t group, size_t groups) const {
  return std::any_of(incidents_.begin(), incidents_.end(), [&](const Incident& incident) {
    return incident.kind == IncidentKind::kMissingCall && incident.rank() == rank &&
           HasStruck(incident, group, groups);
  });
}

bool Conditions::IsMismatched(int rank, size_t group, size_t groups) const {
  return std::any_of(incidents_.begin(), incidents_.end(), [&](const Incident& incident) {
    return incident.kind == IncidentKind::kMismatchedCall && incident.rank() == rank &&
           HasStruck(incident, group, groups);
  });
}

bool Conditions::Hangs(const Communicator& communicator, bool is_collective, size_t group,
                       size_t groups) const {
  return std::any_of(incidents_.begin(), incidents_.end(), [&](const Incident& incident) {
    const bool hangs = incident.kind == IncidentKind::kNetworkHang
                           ? Spans(communicator, incident)
                           : incident.kind == IncidentKind::kMismatchedCall && is_collective &&
                                 communicator.RankOf(incident.rank()) >= 0;
    return hangs && HasStruck(incident, group, groups);
  });
}

int64_t Conditions::LeavesNs(IncidentKind kind, int rank) const {
  constexpr double kEarliest = 0.2;  // of the step's period
  constexpr double kSpan = 0.6;
  for (const Incident& incident : incidents_) {
    if (incident.kind != kind || shape_.ProcessOf(incident.rank()) != shape_.ProcessOf(rank))
      continue;
    if (began_ns_ < incident.from_ns()) continue;
    const double share =
        kEarliest + kSpan * Fraction(HashRandom(seed_, incident.from_ns(), kMoment));
    return began_ns_ + static_cast<int64_t>(share * static_cast<double>(period_ns_));
  }
  return kNever;
}

}  // namespace nccl_exporter::sim
