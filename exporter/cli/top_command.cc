// SPDX-License-Identifier: Apache-2.0
// `nccl-exporter top`: the loop of snapshots, screens and keys. It reads the segments itself, so it
// works without a daemon. Findings are those of the daemon, where that answers.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "exporter/cli/commands.h"
#include "exporter/cli/daemon_judgement.h"
#include "exporter/cli/job_filter.h"
#include "exporter/cli/node_access.h"
#include "exporter/cli/terminal.h"
#include "exporter/cli/top_screen.h"
#include "exporter/findings/node_judge.h"
#include "exporter/findings/words.h"

namespace nccl_exporter::exporter {
namespace {

using SteadyClock = std::chrono::steady_clock;
// Takes a snapshot with arrivals. One ledger makes all the books.
using TopBooks = std::function<std::shared_ptr<const Book>()>;

struct TopRequest {
  bool is_once = false;
  bool is_json = false;
  std::string daemon{kDefaultDaemon};
  JobFilter jobs = {};
};

// Short enough to see a rank fall behind, and long enough for rates of jobs with ten steps a
// second.
constexpr std::chrono::seconds kTopInterval{1};

constexpr const char* kOnceLine =
    "\nLate ranks are not judged: that takes minutes. See `nccl-exporter top` without --once, or "
    "the daemon's page.\n";

int64_t MonotonicNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(SteadyClock::now().time_since_epoch())
      .count();
}

// Whose findings they are; nothing would be false without those that are not shown.
std::string JudgedLine(const ShownJudgement& shown, int64_t now_ns, size_t removed) {
  return shown.Line(now_ns) + (removed == 0 ? ""
                                            : fmt::format(" Not shown: {} about other jobs.",
                                                          CountText(removed, "finding")));
}

// Waits one interval and returns the screen of what happened in it, or the same as JSON. Its own
// findings are those of a single snapshot: no rank is late by one second.
std::string TopOnce(const TopBooks& books, const AskDaemon& daemon, const Thresholds& thresholds,
                    const TopRequest& request, const Options& options) {
  NodeHistory history;
  const auto first = books();
  history.Record(*first, MonotonicNs());
  std::this_thread::sleep_for(kTopInterval);
  const auto second = books();
  history.Record(*second, MonotonicNs());
  const std::shared_ptr<const collector::NodeSnapshot> node = request.jobs.Only(second->node);
  ShownJudgement shown =
      Shown(daemon(), NodeJudge(thresholds).Judge(*second->node), first->node->taken_realtime_ns);
  const size_t removed = request.jobs.Remove(shown.judgement);
  if (request.is_json) return NodeText(options, *node, history, shown);
  TopView view{.judged = JudgedLine(shown, node->taken_realtime_ns, removed)};
  return TopScreen(*node, history, shown.judgement, view) + (shown.is_of_daemon ? "" : kOnceLine);
}

// Shows a screen per interval, until the user or a signal ends it. Keys are answered at once, from
// the snapshot that is shown.
void ShowTop(const TopBooks& books, const AskDaemon& daemon, const Thresholds& thresholds,
             const JobFilter& jobs, Terminal& terminal) {
  DaemonWatch of_daemon(daemon);
  // The judge has the daemon's history, so that it finds the same; the tables have one of seconds.
  NodeJudge judge(thresholds);
  NodeHistory history;
  int64_t since_ns = 0;
  TopView view{.has_colours = Terminal::HasColours()};
  std::shared_ptr<const collector::NodeSnapshot> node;
  ShownJudgement shown;
  SteadyClock::time_point next = SteadyClock::now();
  for (Key key = Key::kNothing; key != Key::kEnd;) {
    if (SteadyClock::now() >= next) {
      const std::shared_ptr<const Book> book = books();
      history.Record(*book, MonotonicNs());
      judge.Record(*book, MonotonicNs());
      node = jobs.Only(book->node);
      if (since_ns == 0) since_ns = node->taken_realtime_ns;
      shown = Shown(of_daemon.Latest(), judge.Judge(*book->node), since_ns);
      const size_t removed = jobs.Remove(shown.judgement);
      view.judged = JudgedLine(shown, node->taken_realtime_ns, removed);
      next = SteadyClock::now() + kTopInterval;
    }
    view.columns = terminal.columns();
    view.rows = terminal.rows();
    terminal.Draw(TopScreen(*node, history, shown.judgement, view));
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(next - SteadyClock::now());
    key = terminal.Wait(std::max(wait, std::chrono::milliseconds(0)));
    Scroll(key, view);
  }
}

int Top(const TopRequest& request, const Options& options) {
  const Thresholds thresholds = ThresholdsOf(options);
  collector::Collector collector = CollectorOf(options);
  const auto first = collector.Snapshot();
  const std::string unreadable = UnreadableDirectories(*first);
  if (!unreadable.empty() && first->processes.empty()) return Fail(kRuntimeFailure, unreadable);
  std::optional<Terminal> terminal;
  const bool is_once = request.is_once || request.is_json;
  if (!is_once && Terminal::IsThere()) terminal.emplace();  // before the collector's thread
  collector.Start();                                        // compares arrivals
  Ledger ledger(LedgerTimesOf(options, thresholds));
  const auto books = [&] { return BookNow(collector, ledger); };
  const AskDaemon daemon = DaemonAt(request.daemon, options.segment_dirs);
  if (!terminal)
    return PrintNode(options, *first, TopOnce(books, daemon, thresholds, request, options));
  ShowTop(books, daemon, thresholds, request.jobs, *terminal);
  terminal.reset();
  return unreadable.empty() ? kSuccess : Fail(kRuntimeFailure, unreadable);
}

void AddTopFlags(CLI::App& app, TopRequest& request) {
  app.add_flag("--once", request.is_once,
               "Print one screen after a second and exit. Without a terminal this is the default.");
  app.add_flag("--json", request.is_json, "Print one JSON object after a second and exit.");
  AddLabelFlags(app, request.jobs.wanted);
  AddDaemonFlag(app, request.daemon);
}

}  // namespace

Command TopCommand() {
  const auto request = std::make_shared<TopRequest>();
  return {.name = "top",
          .help =
              "Show findings and the current state of the ranks in a terminal, from "
              "--segment.dir.",
          .daemon_flags = {"--segment.dir", "--findings.config", "--findings.time-scale"},
          .add_flags = [request](CLI::App& app) { AddTopFlags(app, *request); },
          .run = [request](const Options& options) { return Top(*request, options); }};
}

}  // namespace nccl_exporter::exporter
