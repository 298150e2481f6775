// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/job/job_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "exporter/cli/job/named_ranks.h"
#include "exporter/findings/not_judged.h"
#include "exporter/findings/words.h"
#include "exporter/text/text_table.h"
#include "exporter/text/time_text.h"

namespace nccl_exporter::exporter {
namespace {

// Lines of each table. --json has all.
constexpr size_t kMostLines = 20;

constexpr std::string_view kTitle = "\x1b[1m", kCritical = "\x1b[1;31m", kWarning = "\x1b[33m",
                           kPlain = "\x1b[0m";

int64_t Nanoseconds(double seconds) {
  constexpr double kLatest = 9e9;  // beyond 2200: a server may say anything
  return seconds > 0 && seconds < kLatest ? static_cast<int64_t>(seconds * 1e9) : 0;
}

// An evaluation or two may fail, of rules with intervals of up to a minute.
constexpr double kOldRulesSeconds = 120;

// Alerts of one name about one process and GPU, or about one place without a rank: a line.
struct AlertLine {
  const JobAlert* first = nullptr;
  std::set<std::string> communicators;
  double since = 0;
};

std::vector<AlertLine> LinesOf(const std::vector<JobAlert>& alerts) {
  std::vector<AlertLine> lines;
  std::map<std::tuple<std::string, GpuKey, std::string>, size_t> places;
  for (const JobAlert& alert : alerts) {
    const std::string comm = alert.place.rank.empty() ? alert.place.comm : "";
    const auto [place, is_new] =
        places.try_emplace({alert.name, GpuOf(alert.place), comm}, lines.size());
    if (is_new) lines.push_back({.first = &alert, .communicators = {}, .since = alert.since});
    AlertLine& line = lines[place->second];
    line.communicators.insert(alert.place.comm);
    line.since = EarlierKnown(line.since, alert.since);
  }
  return lines;
}

class Page {
 public:
  Page(const JobState& state, const Warnings& warnings, const JobView& view)
      : state_(state), named_(NamedRanksOf(state)), view_(view) {
    if (!warnings.empty()) AddWrapped(WarningText(warnings), kCritical);
  }

  std::string Text() {
    AddHead();
    AddAlerts();
    AddRanks();
    AddPerhaps();
    AddUnknown();
    AddCommunicators();
    return std::move(text_);
  }

 private:
  void Add(const std::string& line, std::string_view style = {}) {
    const bool has_style = view_.has_colours && !style.empty();
    text_ += (has_style ? std::string(style) : "") + Cut(line, view_.columns) +
             (has_style ? std::string(kPlain) : "") + '\n';
  }
  void AddWrapped(const std::string& text, std::string_view style = {}) {
    for (const std::string& line : Wrapped(text, view_.columns)) Add(line, style);
  }
  void AddMore(size_t count, std::string_view what) {
    if (count > kMostLines)
      Add(fmt::format("{} further {}: --json has all", count - kMostLines, what));
  }
  void AddTable(const TextTable& table, size_t count, std::string_view what) {
    bool is_head = true;
    for (const std::string& line : table.Lines(view_.columns))
      Add(line, std::exchange(is_head, false) ? kTitle : "");
    AddMore(count, what);
  }
  std::string Age(double then) const {
    return AgeText(Nanoseconds(then), Nanoseconds(state_.time));
  }

  void AddHead() {
    constexpr size_t kMinutes = sizeof("2023-11-14T22:13") - 1;
    AddWrapped(fmt::format("{}, {}", Capital(state_.job.Text()),
                           TimeText(Nanoseconds(state_.time)).substr(0, kMinutes) + "Z"),
               kTitle);
    std::string text = fmt::format(
        "{} {} on {} in {}", state_.processes, state_.processes == 1 ? "process" : "processes",
        CountText(state_.nodes, "node"), CountText(state_.communicators.size(), "communicator"));
    for (const auto& [life, word] :
         {std::pair{Life::kEnded, "ended"}, std::pair{Life::kStopped, "stopped"},
          std::pair{Life::kHalted, "ended or stopped"}}) {
      if (const size_t count = CountOf(life); count != 0)
        text += fmt::format(", {} {}", count, word);
    }
    text += '.';
    if (state_.waiting_gpus)
      text += fmt::format(" Lost to waiting: {:.1f} GPUs.", *state_.waiting_gpus);
    else if (!state_.untimed_reasons.empty())
      text += " Lost to waiting: not known.";
    AddWrapped(text);
  }

  template <typename Condition>
  size_t CountProcesses(Condition condition) const {
    std::set<ProcessKey> processes;
    for (const JobCommunicator& communicator : state_.communicators) {
      for (const JobRank& rank : communicator.ranks) {
        if (condition(rank)) processes.insert(ProcessOf(rank.place));
      }
    }
    return processes.size();
  }
  size_t CountOf(Life life) const {
    return CountProcesses([life](const JobRank& rank) { return rank.life == life; });
  }

  // "global rank 3 (GPU 3) on node-0"; of a node or a target its name.
  static std::string PlaceText(const JobPlace& place) {
    std::string text = NamesProcess(place) ? RankName(place) : "";
    if (!place.gpu.empty()) text += " (GPU " + Printable(place.gpu) + ")";
    const std::string& node = place.node.empty() ? place.instance : place.node;
    if (!node.empty()) text += (text.empty() ? "" : " on ") + Printable(node);
    return text;
  }
  static std::string PlaceText(const AlertLine& line) {
    const JobPlace& place = line.first->place;
    std::string text = PlaceText(place);
    if (!place.comm.empty())
      text += (text.empty() ? "" : " in ") + CommunicatorName(place.comm, place.comm_name);
    if (line.communicators.size() > 1)
      text += fmt::format(" and {} more", line.communicators.size() - 1);
    return text;
  }

  void AddAlerts() {
    Add("");
    const std::vector<AlertLine> lines = LinesOf(state_.alerts);
    if (lines.empty()) return Add("No alert fires.");
    Add(CountText(lines.size(), "alert") + (lines.size() == 1 ? " fires:" : " fire:"), kTitle);
    for (size_t i = 0; i < std::min(lines.size(), kMostLines); ++i) {
      const std::string place = PlaceText(lines[i]);
      AddWrapped(Printable(lines[i].first->name) + (place.empty() ? "" : ": " + place) +
                     (lines[i].since > 0 ? ", for " + Age(lines[i].since) : ""),
                 lines[i].first->severity == "critical" ? kCritical : kWarning);
    }
    AddMore(lines.size(), "alerts");
  }

  void AddRanks() {
    Add("");
    if (named_.named.empty()) return AddWrapped(WithoutNames());
    TextTable table({{.head = "LATE OR BEHIND", .is_text = true},
                     {.head = "STATE", .is_text = true},
                     {.head = "FOR"},
                     {.head = "COMMUNICATOR", .is_text = true, .leave_out = 3},
                     {.head = "GPU", .leave_out = 2},
                     {.head = "NODE", .is_text = true, .leave_out = 4},
                     {.head = "PID", .leave_out = 1}});
    for (size_t i = 0; i < std::min(named_.named.size(), kMostLines); ++i) {
      const NamedRank& rank = named_.named[i];
      table.Add({RankName(rank.place), rank.StateText(), Age(rank.since), rank.CommunicatorsText(),
                 Printable(rank.place.gpu), Printable(rank.place.node), Printable(rank.place.pid)});
    }
    AddTable(table, named_.named.size(), "ranks");
  }

  // What is known where no rank is named.
  std::string WithoutNames() const {
    if (state_.processes == 0) return "No rank is reported.";
    const size_t living = CountOf(Life::kLives);
    if (living == 0)
      return CountOf(Life::kEnded) == state_.processes ? "All processes have ended."
                                                       : "All processes have ended or are stopped.";
    const size_t waiting =
        CountProcesses([](const JobRank& rank) { return rank.waits && rank.life == Life::kLives; });
    if (waiting != 0)
      return fmt::format("{} {}. No alert names a rank that {} for.", waiting,
                         waiting == 1 ? "process waits" : "processes wait",
                         waiting == 1 ? "it waits" : "they wait");
    if (!state_.is_judged) return "No rank is named.";
    return living == state_.processes
               ? "No alert names a rank, and no process has ended or is stopped."
               : "No alert names a rank.";
  }

  void AddPerhaps() {
    if (named_.perhaps.empty()) return;
    Add("");
    Add("Perhaps late or behind, but no alert names them:");
    for (size_t i = 0; i < std::min(named_.perhaps.size(), kMostLines); ++i) {
      const NamedRank& rank = named_.perhaps[i];
      AddWrapped(PlaceText(rank.place) + " in " + rank.CommunicatorsText() + ": " +
                 rank.StateText());
    }
    AddMore(named_.perhaps.size(), "ranks");
  }

  // What the sentences above do not cover.
  void AddUnknown() {
    if (state_.processes != 0 && CountOf(Life::kLives) == 0) return;
    if (!state_.is_judged)
      return AddWrapped(
          "Hangs and late ranks are not known: the rules have no series of this job. It is new, or "
          "its labels are not those of the rules (--job-labels).");
    if (state_.rules_age > kOldRulesSeconds)
      AddWrapped(
          fmt::format("The rules were last evaluated {} ago: hangs and late ranks since then "
                      "are not known.",
                      DurationText(state_.rules_age)));
    const auto moves = [](const JobCommunicator& c) { return c.motion() == Motion::kMoves; };
    if (!state_.untimed_reasons.empty())
      AddUntimed();
    else if (!state_.is_timed && std::ranges::any_of(state_.communicators, moves))
      AddWrapped("Late ranks are not known: no time in kernels was measured in the last minute.");
    const auto lacking = std::ranges::count_if(state_.communicators, &JobCommunicator::LacksRanks);
    if (lacking != 0)
      AddWrapped(fmt::format("{} {} ranks that are not reported{}: nothing is known of those.",
                             CountText(static_cast<uint64_t>(lacking), "communicator"),
                             lacking == 1 ? "has" : "have",
                             state_.job.pod_prefix.empty() ? "" : " or not in these pods"));
  }

  void AddUntimed() {
    std::string reasons;
    std::set<std::string> cures;
    for (const std::string& reason : state_.untimed_reasons) {
      reasons += (reasons.empty() ? "" : ", ") + Printable(reason);
      cures.insert(UntimedCure(reason));
    }
    std::string text = "Late ranks cannot be seen: no GPU times (" + reasons + ").";
    for (const std::string& cure : cures) text += ' ' + cure;
    AddWrapped(text);
  }

  static std::string StateOf(const JobCommunicator& communicator, const JobRank* oldest,
                             uint64_t count) {
    const std::string ranks = CountText(count, "rank");
    const std::string in =
        oldest == nullptr || oldest->function.empty() ? "" : " in " + Printable(oldest->function);
    switch (communicator.motion()) {
      case Motion::kWaits:
        return ranks + (count == 1 ? " waits" : " wait") + in;
      case Motion::kHeld:
        return ranks + (in.empty() ? " in an operation" : in);
      case Motion::kMoves:
        return "moves";
      case Motion::kIdle:
        return "idle";
      case Motion::kUnused:
        return "not used yet";
      case Motion::kEnded:
        return "ended or stopped";
      case Motion::kUnknown:
        break;
    }
    return "not known";
  }

  // Cells of the communicator in the table.
  std::vector<std::string> CellsOf(const JobCommunicator& communicator) const {
    const Motion motion = communicator.motion();
    std::set<std::string> nodes;
    const JobRank* oldest = nullptr;  // of the ranks that are in an operation
    uint64_t count = 0;
    for (const JobRank& rank : communicator.ranks) {
      nodes.insert(rank.place.instance);
      if (rank.life != Life::kLives ||
          !(motion == Motion::kWaits ? rank.waits : rank.in_flight.value_or(0) > 0))
        continue;
      ++count;
      if (oldest == nullptr || oldest->function.empty() ||
          (!rank.function.empty() && rank.in_flight_since < oldest->in_flight_since))
        oldest = &rank;
    }
    const bool is_in = motion == Motion::kWaits || motion == Motion::kHeld;
    const double since = is_in && oldest != nullptr && oldest->in_flight_since > 0
                             ? oldest->in_flight_since
                         : is_in || motion == Motion::kIdle ? communicator.last_progress
                                                            : 0;
    const auto known = static_cast<double>(communicator.ranks.size());
    return {CommunicatorName(communicator.id, communicator.name),
            communicator.LacksRanks() ? fmt::format("{}/{:.0f}", known, communicator.size)
                                      : fmt::format("{}", known),
            std::to_string(nodes.size()),
            communicator.started ? fmt::format("{:.0f}", *communicator.started) : "-",
            Age(since),
            StateOf(communicator, oldest, count)};
  }

  void AddCommunicators() {
    Add("");
    TextTable table({{.head = "COMMUNICATOR", .is_text = true},
                     {.head = "RANKS"},
                     {.head = "NODES", .leave_out = 2},
                     {.head = "STARTED", .leave_out = 3},
                     {.head = "FOR"},
                     {.head = "STATE", .is_text = true}});
    std::set<std::string> named;
    for (const NamedRank& rank : named_.named) {
      for (const auto& [id, name] : rank.communicators) named.insert(id);
    }
    // Those of named ranks, then by state, then the largest.
    std::vector<const JobCommunicator*> order;
    for (const JobCommunicator& communicator : state_.communicators) order.push_back(&communicator);
    std::ranges::stable_sort(order, {}, [&](const JobCommunicator* communicator) {
      return std::pair(!named.contains(communicator->id), communicator->motion());
    });
    for (size_t i = 0; i < std::min(order.size(), kMostLines); ++i) table.Add(CellsOf(*order[i]));
    AddTable(table, order.size(), "communicators");
  }

  const JobState& state_;
  const NamedRanks named_;
  const JobView& view_;
  std::string text_;
};

}  // namespace

std::string JobScreen(const JobState& state, const Warnings& warnings, const JobView& view) {
  return Page(state, warnings, view).Text();
}

}  // namespace nccl_exporter::exporter
