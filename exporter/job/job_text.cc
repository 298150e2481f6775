// SPDX-License-Identifier: Apache-2.0
#include "exporter/job/job_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "exporter/commands/text_table.h"
#include "exporter/findings/words.h"
#include "exporter/node/time_text.h"

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

std::string NameOf(const std::string& id, const std::string& name) {
  constexpr size_t kEnough = 8;  // digits, to tell those of a job apart
  return name.empty() ? Printable(id).substr(0, kEnough) : Printable(name);
}

class Page {
 public:
  Page(const JobState& state, const JobView& view) : state_(state), view_(view) {}

  std::string Text() {
    AddHead();
    AddAlerts();
    AddRanks();
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
  void AddTable(const TextTable& table, size_t more, std::string_view what) {
    bool is_head = true;
    for (const std::string& line : table.Lines(view_.columns))
      Add(line, std::exchange(is_head, false) ? kTitle : "");
    if (more != 0) Add(fmt::format("{} further {}: --json has all", more, what));
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
        "{} {} on {} in {}.", state_.processes, state_.processes == 1 ? "process" : "processes",
        CountText(state_.nodes, "node"), CountText(state_.communicators.size(), "communicator"));
    if (state_.waiting_gpus)
      text += fmt::format(" Lost to waiting: {:.1f} GPUs.", *state_.waiting_gpus);
    AddWrapped(text);
  }

  std::string PlaceOf(const JobAlert& alert) const {
    std::string text;
    if (!alert.rank.empty())
      text = alert.global_rank.empty() ? "rank " + Printable(alert.rank)
                                       : "global rank " + Printable(alert.global_rank);
    if (!alert.gpu.empty()) text += " (GPU " + Printable(alert.gpu) + ")";
    if (!alert.node.empty()) text += (text.empty() ? "" : " on ") + Printable(alert.node);
    if (!alert.comm.empty())
      text += (text.empty() ? "" : " in ") + NameOf(alert.comm, alert.comm_name);
    return text;
  }

  void AddAlerts() {
    Add("");
    if (state_.alerts.empty()) return Add("No alert fires.");
    Add(CountText(state_.alerts.size(), "alert") +
            (state_.alerts.size() == 1 ? " fires:" : " fire:"),
        kTitle);
    for (size_t i = 0; i < std::min(state_.alerts.size(), kMostLines); ++i) {
      const JobAlert& alert = state_.alerts[i];
      const std::string place = PlaceOf(alert);
      AddWrapped(Printable(alert.name) + (place.empty() ? "" : ": " + place) +
                     (alert.since > 0 ? ", for " + Age(alert.since) : ""),
                 alert.severity == "critical" ? kCritical : kWarning);
    }
    if (state_.alerts.size() > kMostLines)
      Add(fmt::format("{} further alerts: --json has all", state_.alerts.size() - kMostLines));
  }

  // Of the alert about the rank that began first; 0: there is none.
  double AlertSince(const JobCommunicator& communicator, const JobRank& rank) const {
    double since = 0;
    for (const JobAlert& alert : state_.alerts) {
      if (alert.comm != communicator.id || alert.rank != rank.rank || alert.since <= 0) continue;
      since = since == 0 ? alert.since : std::min(since, alert.since);
    }
    return since;
  }

  static std::string StateOf(const JobRank& rank) {
    std::string text = rank.is_dead ? "ended" : rank.is_stopped ? "stopped" : "";
    const auto add = [&](const std::string& more) { text += (text.empty() ? "" : ", ") + more; };
    if (rank.behind > 0) add(fmt::format("behind by {:.0f}", rank.behind));
    if (rank.late_share) add(fmt::format("late {:.1f} %", 100 * *rank.late_share));
    return text;
  }

  void AddRanks() {
    Add("");
    if (state_.has_ended) return Add("All processes have ended.");
    TextTable table({{.head = "LATE OR BEHIND", .is_text = true},
                     {.head = "STATE", .is_text = true},
                     {.head = "FOR"},
                     {.head = "COMMUNICATOR", .is_text = true, .leave_out = 3},
                     {.head = "GPU", .leave_out = 2},
                     {.head = "NODE", .is_text = true, .leave_out = 4},
                     {.head = "PID", .leave_out = 1}});
    size_t found = 0;
    for (const JobCommunicator& communicator : state_.communicators) {
      for (const JobRank& rank : communicator.ranks) {
        if (!rank.IsCause() || ++found > kMostLines) continue;
        const double alert = AlertSince(communicator, rank);
        table.Add({rank.global_rank.empty() ? "rank " + Printable(rank.rank)
                                            : "global rank " + Printable(rank.global_rank),
                   StateOf(rank),
                   Age(alert > 0         ? alert
                       : rank.late_share ? 0
                                         : communicator.last_progress),
                   NameOf(communicator.id, communicator.name), Printable(rank.gpu),
                   Printable(rank.node), Printable(rank.pid)});
      }
    }
    if (found == 0)
      return Add("No rank is late or behind, and no process has ended or is stopped.");
    AddTable(table, found - std::min(found, kMostLines), "ranks");
  }

  static std::string StateOf(const JobCommunicator& communicator) {
    if (communicator.last_progress <= 0) return "not used yet";
    if (!communicator.is_still) return "moves";
    const auto waiting = std::ranges::count(communicator.ranks, true, &JobRank::waits);
    const JobRank* oldest = nullptr;
    for (const JobRank& rank : communicator.ranks) {
      if (!rank.waits) continue;
      if (oldest == nullptr || rank.in_flight_since < oldest->in_flight_since) oldest = &rank;
    }
    if (oldest == nullptr) return "idle";
    return CountText(static_cast<uint64_t>(waiting), "rank") + (waiting == 1 ? " waits" : " wait") +
           " in " + Printable(oldest->function);
  }

  void AddCommunicators() {
    Add("");
    TextTable table({{.head = "COMMUNICATOR", .is_text = true},
                     {.head = "RANKS"},
                     {.head = "NODES", .leave_out = 2},
                     {.head = "STARTED", .leave_out = 3},
                     {.head = "MOVED"},
                     {.head = "STATE", .is_text = true}});
    // Those in which ranks wait, then the largest.
    std::vector<const JobCommunicator*> order;
    for (const JobCommunicator& communicator : state_.communicators) order.push_back(&communicator);
    std::ranges::stable_sort(order, {}, [](const JobCommunicator* communicator) {
      return std::ranges::none_of(communicator->ranks,
                                  [](const JobRank& rank) { return rank.waits || rank.IsCause(); });
    });
    for (size_t i = 0; i < std::min(order.size(), kMostLines); ++i) {
      const JobCommunicator& communicator = *order[i];
      std::vector<std::string> nodes;
      for (const JobRank& rank : communicator.ranks) nodes.push_back(rank.instance);
      std::ranges::sort(nodes);
      const auto repeated = std::ranges::unique(nodes);
      const auto known = static_cast<double>(communicator.ranks.size());
      table.Add({NameOf(communicator.id, communicator.name),
                 communicator.size > known ? fmt::format("{}/{:.0f}", known, communicator.size)
                                           : fmt::format("{}", known),
                 std::to_string(nodes.size() - repeated.size()),
                 fmt::format("{:.0f}", communicator.started), Age(communicator.last_progress),
                 StateOf(communicator)});
    }
    AddTable(table, order.size() - std::min(order.size(), kMostLines), "communicators");
  }

  const JobState& state_;
  const JobView& view_;
  std::string text_;
};

}  // namespace

std::string JobScreen(const JobState& state, const JobView& view) {
  return Page(state, view).Text();
}

std::string JobsScreen(const std::vector<Job>& jobs, const JobView& view) {
  TextTable table({{.head = "JOB", .is_text = true},
                   {.head = "NAME", .is_text = true, .leave_out = 1},
                   {.head = "NAMESPACE", .is_text = true},
                   {.head = "CLUSTER", .is_text = true, .leave_out = 2},
                   {.head = "USER", .is_text = true},
                   {.head = "PROCESSES"}});
  for (const Job& job : jobs) {
    table.Add({job.slurm_job_id.empty() ? "-" : Printable(job.slurm_job_id),
               Printable(job.slurm_job_name), Printable(job.name_space), Printable(job.cluster),
               Printable(job.uid), std::to_string(job.processes)});
  }
  std::string text;
  for (const std::string& line : table.Lines(view.columns)) text += line + '\n';
  for (const std::string& line :
       Wrapped("Choose one with --job: its id, name, namespace or cluster, or the beginning of its "
               "pods' names. Several --job must all be true.",
               view.columns))
    text += line + '\n';
  return text;
}

}  // namespace nccl_exporter::exporter
