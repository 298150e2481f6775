// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/top.h"

#include <algorithm>
#include <cstdint>
#include <thread>

#include "exporter/cli/client/daemon_watch.h"
#include "exporter/cli/node_in_json.h"
#include "exporter/cli/top_screen.h"
#include "exporter/findings/node_judge.h"

namespace nccl_exporter::exporter {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr const char* kOnceLine =
    "\nLate ranks are not judged: that takes minutes. See `nccl-exporter top` without --once, or "
    "the "
    "daemon's page.\n";

int64_t MonotonicNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(SteadyClock::now().time_since_epoch())
      .count();
}

}  // namespace

std::string TopOnce(const TopBooks& books, const AskDaemon& daemon, TopSort sort,
                    const Thresholds& thresholds, bool is_json) {
  NodeHistory history;
  const auto first = books();
  history.Record(*first, MonotonicNs());
  std::this_thread::sleep_for(kTopInterval);
  const auto second = books();
  history.Record(*second, MonotonicNs());
  const std::shared_ptr<const collector::NodeSnapshot> node = second->node;
  const ShownJudgement shown =
      Shown(daemon(), NodeJudge(thresholds).Judge(*node), first->node->taken_realtime_ns);
  if (is_json) return TopJson(*node, history, shown, sort);
  const TopView view{.sort = sort, .judged = shown.Line(node->taken_realtime_ns)};
  return TopScreen(*node, history, shown.judgement, view).text +
         (shown.is_of_daemon ? "" : kOnceLine);
}

void ShowTop(const TopBooks& books, const AskDaemon& daemon, TopSort sort,
             const Thresholds& thresholds, Terminal& terminal) {
  DaemonWatch of_daemon(daemon);
  // The judge has the daemon's history, so that it finds the same; the tables have one of seconds.
  NodeJudge judge(thresholds);
  NodeHistory history;
  int64_t since_ns = 0;
  TopView view{.sort = sort, .has_colours = Terminal::HasColours()};
  std::shared_ptr<const collector::NodeSnapshot> node;
  ShownJudgement shown;
  SteadyClock::time_point next = SteadyClock::now();
  for (bool goes_on = true; goes_on;) {
    if (node == nullptr || (SteadyClock::now() >= next && !view.is_paused)) {
      const std::shared_ptr<const Book> book = books();
      history.Record(*book, MonotonicNs());
      judge.Record(*book, MonotonicNs());
      node = book->node;
      if (since_ns == 0) since_ns = node->taken_realtime_ns;
      shown = Shown(of_daemon.Latest(), judge.Judge(*node), since_ns);
      view.judged = shown.Line(node->taken_realtime_ns);
    }
    if (SteadyClock::now() >= next) next = SteadyClock::now() + kTopInterval;
    view.columns = terminal.columns();
    view.rows = terminal.rows();
    const TopPicture picture = TopScreen(*node, history, shown.judgement, view);
    terminal.Draw(picture.text);
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(next - SteadyClock::now());
    goes_on = Apply(terminal.Wait(std::max(wait, std::chrono::milliseconds(0))), picture, view);
  }
}

}  // namespace nccl_exporter::exporter
