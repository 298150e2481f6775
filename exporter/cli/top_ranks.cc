// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/top_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>

#include "exporter/findings/words.h"
#include "exporter/text/text_table.h"

namespace nccl_exporter::exporter {
namespace {

// One long name must not push the other columns off the screen.
constexpr size_t kNameColumns = 24;
// Of a list of members: the first ones tell communicators apart.
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

bool IsOf(const FoundRank& found, const Finding& finding, const TopRank& line) {
  if (finding.communicator &&
      (*finding.communicator != line.of->key || found.rank != line.rank->communicator->rank)) {
    return false;
  }
  if (found.pid == 0) return finding.communicator.has_value();
  const bool is_of_host =
      found.host_name.empty() || found.host_name == Printable(line.rank->process->NodeName());
  return found.pid == line.rank->process->pid && is_of_host;
}

std::string StandingText(Standing standing) {
  std::string text(RowIn(kStandings, standing).name);
  std::ranges::replace(text, '_', ' ');
  return text;
}

// By the first finding that names it, which is the worst.
void Mark(const Judgement& judgement, TopRank& line) {
  const collector::ProcessSnapshot& process = *line.rank->process;
  if (!process.is_alive) line.state = StandingText(Standing::kKilled);
  if (process.is_alive && process.is_stopped.value_or(false))
    line.state = StandingText(Standing::kStopped);
  const auto standing = [&](const std::vector<FoundRank>& ranks,
                            const Finding& finding) -> const FoundRank* {
    const auto found = std::ranges::find_if(
        ranks, [&](const FoundRank& rank) { return IsOf(rank, finding, line); });
    return found == ranks.end() ? nullptr : &*found;
  };
  for (const Finding& finding : judgement.findings) {
    if (finding.severity == Severity::kInfo) continue;
    if (const FoundRank* const culprit = standing(finding.culprits, finding)) {
      line.is_culprit = true;
      line.state = StandingText(culprit->standing);
      return;
    }
    if (!line.is_waiting && standing(finding.waiting, finding) != nullptr) {
      line.is_waiting = true;
      if (line.state.empty()) line.state = StandingText(Standing::kWaits);
    }
  }
}

TopRank RankOf(const CommunicatorOnNode& of, const RankOnNode& rank, std::string name,
               const collector::NodeSnapshot& node, const NodeHistory& history) {
  const collector::CommunicatorSnapshot& here = *rank.communicator;
  TopRank line{
      .of = &of,
      .rank = &rank,
      .communicator = std::move(name),
      .arrivals =
          history.RecentArrivals(of.key, here.rank, Seconds(Thresholds().arrivals_window())),
      .network = history.RecentNetwork(of.key, here.rank, Seconds(Thresholds().arrivals_window())),
      .behind = of.max_started - here.started_sequence};
  if (here.completion_is_known && !here.in_flight.empty()) {
    const int64_t age_ns = node.taken_realtime_ns - here.in_flight.front().start_realtime_ns;
    line.age_seconds = static_cast<double>(std::max<int64_t>(age_ns, 0)) / 1e9;
  }
  const collector::ArrivalCounts& counts = line.arrivals.counts;
  if (counts.compared > 0)
    line.last_share = static_cast<double>(counts.last) / static_cast<double>(counts.compared);
  return line;
}

bool IsIdleAlone(const CommunicatorOnNode& of) {
  return of.ranks.size() == 1 && of.key.ranks == 1 && of.oldest_start_ns == kNothingInFlight;
}

void Sort(std::vector<TopRank>& ranks, TopSort sort) {
  std::ranges::stable_sort(ranks, {}, [](const TopRank& line) {
    return std::tuple(line.communicator, line.of->key.id, line.rank->communicator->rank);
  });
  if (sort == TopSort::kRank) std::ranges::stable_sort(ranks, std::greater(), &TopRank::is_waiting);
  if (sort == TopSort::kAge) std::ranges::stable_sort(ranks, std::greater(), &TopRank::age_seconds);
  if (sort == TopSort::kLate) std::ranges::stable_sort(ranks, std::greater(), &TopRank::last_share);
  if (sort == TopSort::kBehind) std::ranges::stable_sort(ranks, std::greater(), &TopRank::behind);
  std::ranges::stable_sort(ranks, std::greater(), &TopRank::is_culprit);
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

bool Has(const TopRank& line, const std::string& word) {
  const collector::CommunicatorSnapshot& here = *line.rank->communicator;
  const std::string rank = std::to_string(here.rank), gpu = std::to_string(here.gpu_index),
                    pid = std::to_string(line.rank->process->pid);
  const size_t equals = word.find('=');
  if (equals != std::string::npos) {
    const std::string name = word.substr(0, equals), value = word.substr(equals + 1);
    return (name == "rank" && value == rank) || (name == "gpu" && value == gpu) ||
           (name == "pid" && value == pid);
  }
  if (std::ranges::all_of(word, [](char c) { return c >= '0' && c <= '9'; }))
    return word == rank || word == gpu || word == pid;
  return Lower(line.communicator).find(word) != std::string::npos ||
         line.state.find(word) != std::string::npos;
}

}  // namespace

TopRankId TopRank::id() const {
  return {.file = rank->process->file, .slot = rank->communicator->slot};
}

double TopRank::MeanLatenessSeconds() const {
  return static_cast<double>(arrivals.counts.lateness_ns) / 1e9 /
         static_cast<double>(arrivals.counts.compared);
}

std::string TopRank::LastText() const {
  return last_share < 0 ? "-" : fmt::format("{:.0f} %", last_share * 100);
}

std::string TopRank::LateText() const {
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

TopRanks RanksOfTop(const std::vector<CommunicatorOnNode>& communicators,
                    const collector::NodeSnapshot& node, const NodeHistory& history,
                    const Judgement& judgement, TopSort sort) {
  const std::vector<std::string> names = CommunicatorNames(communicators);
  TopRanks found;
  for (size_t i = 0; i < communicators.size(); ++i) {
    bool is_quiet = IsIdleAlone(communicators[i]);
    std::vector<TopRank> lines;
    for (const RankOnNode& rank : communicators[i].ranks) {
      lines.push_back(RankOf(communicators[i], rank, names[i], node, history));
      Mark(judgement, lines.back());
      is_quiet &= lines.back().state.empty();
    }
    if (is_quiet) {
      ++found.folded;
    } else {
      std::ranges::move(lines, std::back_inserter(found.ranks));
    }
  }
  Sort(found.ranks, sort);
  return found;
}

void Filter(std::string_view filter, std::vector<TopRank>& ranks) {
  std::istringstream words{Lower(filter)};
  for (std::string word; words >> word;)
    std::erase_if(ranks, [&](const TopRank& line) { return !Has(line, word); });
}

}  // namespace nccl_exporter::exporter
