// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/job/named_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "exporter/findings/words.h"

namespace nccl_exporter::exporter {
namespace {

constexpr std::string_view kCulprit = "NCCLHangCulprit", kMismatched = "NCCLHangMismatchedCall",
                           kMissing = "NCCLRanksMissing", kLateRank = "NCCLStragglerRank",
                           kLateNode = "NCCLStragglerNode", kLastArriver = "NCCLLastArriver";

class Naming {
 public:
  explicit Naming(const JobState& state) : state_(state) {
    for (const JobCommunicator& communicator : state.communicators) {
      for (const JobRank& rank : communicator.ranks) {
        lives_[ProcessOf(rank.place)] = rank.life;
        if (rank.waits) waiting_.insert(GpuOf(rank.place));
      }
    }
  }

  NamedRanks Find() {
    for (const JobAlert& alert : state_.alerts) AddAlert(alert);
    for (const JobCommunicator& communicator : state_.communicators) AddHalted(communicator);
    for (const Recorded& culprit : state_.culprits) {
      NamedRank& rank = RowOf(culprit.place, [](const NamedRank& row) {
        return row.Has(kCulprit) || row.life != Life::kLives;
      });
      rank.behind = std::max(rank.behind, culprit.value);
    }
    for (const auto* const all : {&state_.late_ranks, &state_.late_nodes}) {
      for (const Recorded& late : *all) {
        NamedRank& rank = RowOf(late.place, [](const NamedRank& row) {
          return row.Has(kLateRank) || row.Has(kLateNode) || row.Has(kLastArriver);
        });
        rank.late_share = std::max(rank.late_share.value_or(0), late.value);
      }
    }
    // The ranks of a late node are late with it.
    std::erase_if(perhaps_, [&](const auto& row) {
      const JobPlace& place = row.second.place;
      return row.second.late_share && !place.rank.empty() &&
             named_.contains(GpuOf({.node = place.node, .instance = place.instance}));
    });
    return {.named = Sorted(named_), .perhaps = Sorted(perhaps_)};
  }

 private:
  using Rows = std::map<GpuKey, NamedRank>;

  NamedRank& Add(const JobPlace& place, Rows& rows) const {
    NamedRank& rank = rows.try_emplace(GpuOf(place), NamedRank{.place = place}).first->second;
    const auto life = lives_.find(ProcessOf(place));
    rank.is_reported = !state_.missing.contains(GpuOf(place));
    if (life != lives_.end()) rank.life = life->second;
    if (rank.place.rank.empty() && !place.rank.empty()) rank.place = place;  // of an alert without
    const bool is_new =
        !place.comm.empty() && std::ranges::none_of(rank.communicators, [&](const auto& known) {
          return known.first == place.comm;
        });
    if (is_new) rank.communicators.emplace_back(place.comm, place.comm_name);
    return rank;
  }

  // The row of a named one where what is known of it already is proof; else one of `perhaps`.
  template <typename IsProof>
  NamedRank& RowOf(const JobPlace& place, IsProof is_proof) {
    const auto row = named_.find(GpuOf(place));
    return Add(place, row != named_.end() && is_proof(row->second) ? named_ : perhaps_);
  }

  void AddAlert(const JobAlert& alert) {
    if (!NamesProcess(alert.place) && alert.name != kLateNode) return;
    NamedRank& rank = Add(alert.place, named_);
    if (!rank.Has(alert.name)) rank.alerts.push_back(alert.name);
    rank.is_critical = rank.is_critical || alert.severity == "critical";
    rank.since = EarlierKnown(rank.since, alert.since);
    if (alert.name == kMismatched) rank.function = alert.function;
  }

  // One that waited itself is no cause: jobs are killed because they hang.
  void AddHalted(const JobCommunicator& communicator) {
    const bool has_moved = communicator.changes.value_or(0) > 0;
    const bool any_needs_it = std::ranges::any_of(communicator.ranks, [&](const JobRank& rank) {
      const bool goes_on = has_moved && (!rank.progress || rank.in_flight.value_or(0) > 0);
      return rank.life == Life::kLives && (rank.waits || goes_on);
    });
    if (!any_needs_it) return;
    for (const JobRank& rank : communicator.ranks) {
      if (rank.life != Life::kLives && !waiting_.contains(GpuOf(rank.place)))
        Add(rank.place, named_);
    }
  }

  static std::vector<NamedRank> Sorted(Rows& rows) {
    std::vector<NamedRank> sorted;
    for (auto& [key, rank] : rows) sorted.push_back(std::move(rank));
    std::ranges::stable_sort(sorted, {}, [](const NamedRank& rank) {
      return std::tuple(rank.alerts.empty(), !rank.is_critical, rank.life == Life::kLives,
                        -rank.behind, -rank.late_share.value_or(0), Order(rank.place.global_rank),
                        Order(rank.place.rank));
    });
    return sorted;
  }

  const JobState& state_;
  std::map<ProcessKey, Life> lives_;
  std::set<GpuKey> waiting_;
  Rows named_, perhaps_;
};

}  // namespace

bool NamedRank::Has(std::string_view alert) const {
  return std::ranges::find(alerts, alert) != alerts.end();
}

std::string NamedRank::StateText() const {
  std::string text;
  const auto add = [&](const std::string& more) { text += (text.empty() ? "" : ", ") + more; };
  if (life == Life::kEnded) add("ended");
  if (life == Life::kStopped) add("stopped");
  if (life == Life::kHalted) add("ended or stopped");
  if (!is_reported || Has(kMissing)) add("not reported");
  if (behind > 0) add(fmt::format("behind by {:.0f}", behind));
  if (Has(kMismatched))
    add("in another call" + (function.empty() ? "" : " (" + Printable(function) + ")"));
  if (late_share) add(fmt::format("late {:.1f} %", 100 * *late_share));
  if (!late_share && (Has(kLateRank) || Has(kLateNode))) add("late");
  if (Has(kLastArriver)) add("arrives last");
  if (!text.empty()) return text;
  for (const std::string& alert : alerts) add(Printable(alert));
  return text.empty() ? "takes no part" : text;
}

std::string NamedRank::CommunicatorsText() const {
  if (communicators.empty()) return "";
  const auto& [id, name] = communicators.front();
  return CommunicatorName(id, name) +
         (communicators.size() > 1 ? fmt::format(" and {} more", communicators.size() - 1) : "");
}

NamedRanks NamedRanksOf(const JobState& state) { return Naming(state).Find(); }

}  // namespace nccl_exporter::exporter
