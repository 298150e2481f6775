// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/rank_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "exporter/findings/words.h"
#include "exporter/text/text_table.h"

namespace nccl_exporter::exporter {
namespace {

// One long name must not push the other columns off the screen.
constexpr size_t kNameColumns = 24;
// The first members of a list distinguish communicators.
constexpr size_t kMostRanges = 4;

// "0-3,7".
std::string RangesText(const std::set<uint64_t>& numbers) {
  std::string text;
  size_t ranges = 0;
  for (auto first = numbers.begin(); first != numbers.end();) {
    auto last = first;
    for (auto next = std::next(first); next != numbers.end() && *next == *last + 1; ++next)
      last = next;
    if (ranges++ == kMostRanges) return text + ",..";
    text += fmt::format("{}{}", text.empty() ? "" : ",", *first);
    if (last != first) text += fmt::format("{}{}", *last == *first + 1 ? "," : "-", *last);
    first = std::next(last);
  }
  return text;
}

std::string MembersText(const CommunicatorOnNode& communicator) {
  std::set<uint64_t> gpus, ranks;
  for (const RankOnNode& rank : communicator.ranks) {
    ranks.insert(rank.communicator->rank);
    if (rank.communicator->gpu_index >= 0)
      gpus.insert(static_cast<uint64_t>(rank.communicator->gpu_index));
  }
  return gpus.empty() ? "rank " + RangesText(ranks) : "GPU " + RangesText(gpus);
}

// Adds `more` to each name that another has, too.
void TellApart(std::vector<std::string>& names,
               const std::function<std::string(size_t index)>& more) {
  std::map<std::string, size_t> uses;
  for (const std::string& name : names) ++uses[name];
  for (size_t i = 0; i < names.size(); ++i) {
    if (uses[names[i]] > 1) names[i] += ' ' + more(i);
  }
}

bool IsOf(const FoundRank& found, const Finding& finding, const RankView& view) {
  if (finding.communicator &&
      (*finding.communicator != view.of->key || found.rank != view.rank->communicator->rank))
    return false;
  if (found.pid == 0) return finding.communicator.has_value();
  const collector::ProcessSnapshot& process = *view.rank->process;
  const std::string pod = Printable(process.Identity("POD_NAME"));
  return found.pid == process.pid && (pod.empty() || found.pod.empty() || found.pod == pod) &&
         (found.host_name.empty() || found.host_name == Printable(process.NodeName()));
}

// The rank among those of a finding; null: it is none of them.
const FoundRank* FindIn(const std::vector<FoundRank>& ranks, const Finding& finding,
                        const RankView& view) {
  const auto found =
      std::ranges::find_if(ranks, [&](const FoundRank& rank) { return IsOf(rank, finding, view); });
  return found == ranks.end() ? nullptr : &*found;
}

std::string StandingText(Standing standing) {
  std::string text(RowIn(kStandings, standing).name);
  std::ranges::replace(text, '_', ' ');
  return text;
}

// The state is that of the first finding that names it, which is the worst.
void Mark(const Judgement& judgement, RankView& view) {
  const collector::ProcessSnapshot& process = *view.rank->process;
  if (!process.is_alive) view.state = StandingText(Standing::kKilled);
  if (process.is_alive && process.is_stopped.value_or(false))
    view.state = StandingText(Standing::kStopped);
  for (const Finding& finding : judgement.findings) {
    const FoundRank* const culprit = FindIn(finding.culprits, finding, view);
    view.is_late |= culprit != nullptr && finding.kind == FindingKind::kLateRank;
    if (finding.severity == Severity::kInfo || view.is_culprit) continue;
    if (culprit != nullptr) {
      view.is_culprit = true;
      view.state = StandingText(culprit->standing);
    } else if (!view.is_waiting && FindIn(finding.waiting, finding, view) != nullptr) {
      view.is_waiting = true;
      if (view.state.empty()) view.state = StandingText(Standing::kWaits);
    }
  }
}

bool IsIdleAlone(const CommunicatorOnNode& of) {
  return of.ranks.size() == 1 && of.key.ranks == 1 && of.oldest_start_ns == kNothingInFlight;
}

void Sort(std::vector<RankView>& ranks) {
  std::ranges::stable_sort(ranks, {}, [](const RankView& line) {
    return std::tuple(!line.is_culprit, !line.is_waiting, line.communicator, line.of->key.id,
                      line.rank->communicator->rank);
  });
}

}  // namespace

double RankView::MeanLatenessSeconds() const {
  return static_cast<double>(recent.arrivals.lateness_ns) / 1e9 /
         static_cast<double>(recent.arrivals.compared);
}

std::string RankView::LastText() const {
  return last_share < 0 ? "-" : fmt::format("{:.0f} %", last_share * 100);
}

std::string RankView::LateText() const {
  return last_share < 0 ? "-" : DurationText(MeanLatenessSeconds());
}

std::vector<std::string> CommunicatorNames(const std::vector<CommunicatorOnNode>& communicators) {
  std::vector<std::string> names;
  for (const CommunicatorOnNode& communicator : communicators) {
    const std::string& name = communicator.ranks.front().communicator->name;
    names.push_back(Cut(CommunicatorText(communicator.key.id, name), kNameColumns));
  }
  TellApart(names, [&](size_t i) { return MembersText(communicators[i]); });
  TellApart(names, [&](size_t i) { return CommunicatorText(communicators[i].key.id, ""); });
  return names;
}

RankView RankViewOf(const CommunicatorOnNode& of, const RankOnNode& rank, int64_t now_ns,
                    const NodeHistory& history, const Judgement& judgement) {
  const collector::CommunicatorSnapshot& here = *rank.communicator;
  const double window = Seconds(Thresholds().arrivals_window());
  RankView view{.of = &of, .rank = &rank, .behind = of.max_started - here.started_sequence};
  if (here.arrivals || here.network) view.recent = history.RecentRank(of.key, here.rank, window);
  if (here.completion_is_known && !here.in_flight.empty()) {
    const int64_t age_ns = now_ns - here.in_flight.front().start_realtime_ns;
    view.age_seconds = static_cast<double>(std::max<int64_t>(age_ns, 0)) / 1e9;
  }
  const collector::ArrivalCounts& counts = view.recent.arrivals;
  if (counts.compared > 0)
    view.last_share = static_cast<double>(counts.last) / static_cast<double>(counts.compared);
  Mark(judgement, view);
  return view;
}

RankViews RankViewsOf(const std::vector<CommunicatorOnNode>& communicators, int64_t now_ns,
                      const NodeHistory& history, const Judgement& judgement) {
  const std::vector<std::string> names = CommunicatorNames(communicators);
  RankViews found;
  for (size_t i = 0; i < communicators.size(); ++i) {
    bool is_quiet = IsIdleAlone(communicators[i]);
    std::vector<RankView> views;
    for (const RankOnNode& rank : communicators[i].ranks) {
      views.push_back(RankViewOf(communicators[i], rank, now_ns, history, judgement));
      views.back().communicator = names[i];
      is_quiet &= views.back().state.empty();
    }
    if (is_quiet) {
      ++found.folded;
    } else {
      std::ranges::move(views, std::back_inserter(found.ranks));
    }
  }
  Sort(found.ranks);
  return found;
}

void PutFoundFirst(const Judgement& judgement, std::vector<CommunicatorOnNode>& communicators) {
  std::map<collector::CommunicatorKey, size_t> places;
  for (const Finding& finding : judgement.findings) {
    if (finding.communicator) places.try_emplace(*finding.communicator, places.size());
  }
  std::ranges::stable_sort(communicators, {}, [&](const CommunicatorOnNode& communicator) {
    const auto place = places.find(communicator.key);
    return place == places.end() ? places.size() : place->second;
  });
}

}  // namespace nccl_exporter::exporter
