// SPDX-License-Identifier: Apache-2.0
#include "exporter/commands/top.h"

#include <algorithm>
#include <cstdint>
#include <thread>

#include "exporter/commands/node_in_json.h"
#include "exporter/commands/top_screen.h"
#include "exporter/findings/node_judge.h"

namespace nccl_exporter::exporter {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr const char* kOnceLine =
    "Late ranks are not judged: that takes minutes. See `nccl-exporter top` without --once, or the "
    "daemon's page.\n";

int64_t MonotonicNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(SteadyClock::now().time_since_epoch())
      .count();
}

}  // namespace

std::string TopOnce(const TopSnapshots& snapshots, TopSort sort, bool is_json) {
  NodeHistory history;
  history.Record(*snapshots(), MonotonicNs());
  std::this_thread::sleep_for(kTopInterval);
  const auto node = snapshots();
  history.Record(*node, MonotonicNs());
  const Judgement judgement = NodeJudge().Judge(*node);
  if (is_json) return TopJson(*node, history, judgement, sort);
  return TopScreen(*node, history, judgement, {.sort = sort}).text + '\n' + kOnceLine;
}

void ShowTop(const TopSnapshots& snapshots, TopSort sort, const JudgementTimes& times,
             Terminal& terminal) {
  // The judge has the daemon's history, so that it finds the same; the tables have one of seconds.
  NodeJudge judge(times);
  NodeHistory history;
  TopView view{.sort = sort, .has_colours = Terminal::HasColours()};
  std::shared_ptr<const collector::NodeSnapshot> node;
  Judgement judgement;
  SteadyClock::time_point next = SteadyClock::now();
  for (bool goes_on = true; goes_on;) {
    if (node == nullptr || (SteadyClock::now() >= next && !view.is_paused)) {
      node = snapshots();
      history.Record(*node, MonotonicNs());
      judge.Record(*node, MonotonicNs());
      judgement = judge.Judge(*node);
    }
    if (SteadyClock::now() >= next) next = SteadyClock::now() + kTopInterval;
    view.columns = terminal.columns();
    view.rows = terminal.rows();
    const TopPicture picture = TopScreen(*node, history, judgement, view);
    terminal.Draw(picture.text);
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(next - SteadyClock::now());
    goes_on = Apply(terminal.Wait(std::max(wait, std::chrono::milliseconds(0))), picture, view);
  }
}

}  // namespace nccl_exporter::exporter
