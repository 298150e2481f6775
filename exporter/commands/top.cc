// SPDX-License-Identifier: Apache-2.0
#include "exporter/commands/top.h"

#include <algorithm>
#include <cstdint>
#include <thread>

#include "exporter/node/node_history.h"

namespace nccl_exporter {
namespace {

using SteadyClock = std::chrono::steady_clock;

int64_t MonotonicNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(SteadyClock::now().time_since_epoch()).count();
}

void Apply(Key key, TopView& view) {
  if (key == Key::kPause) view.is_paused = !view.is_paused;
  if (key == Key::kUp && view.first_rank > 0) --view.first_rank;
  if (key == Key::kDown) ++view.first_rank;
  if (key != Key::kSort) return;
  view.sort = static_cast<TopSort>((static_cast<size_t>(view.sort) + 1) % kTopSorts.size());
  view.first_rank = 0;
}

size_t RanksOf(const NodeSnapshot& node) {
  size_t ranks = 0;
  for (const ProcessSnapshot& process : node.processes) ranks += process.communicators.size();
  return ranks;
}

}  // namespace

std::string TopOnce(const TopSnapshots& snapshots, TopSort sort) {
  NodeHistory history;
  history.Record(*snapshots(), MonotonicNs());
  std::this_thread::sleep_for(kTopInterval);
  const auto node = snapshots();
  history.Record(*node, MonotonicNs());
  return TopScreen(*node, history, {.sort = sort});
}

void ShowTop(const TopSnapshots& snapshots, TopSort sort, Terminal& terminal) {
  NodeHistory history;
  TopView view{.sort = sort, .has_colours = true};
  std::shared_ptr<const NodeSnapshot> node;
  SteadyClock::time_point next = SteadyClock::now();
  for (Key key = Key::kNone; key != Key::kQuit;) {
    Apply(key, view);
    if (node == nullptr || (SteadyClock::now() >= next && !view.is_paused)) {
      node = snapshots();
      history.Record(*node, MonotonicNs());
    }
    if (SteadyClock::now() >= next) next = SteadyClock::now() + kTopInterval;
    view.first_rank = std::min(view.first_rank, RanksOf(*node));
    view.columns = terminal.columns();
    view.rows = terminal.rows();
    terminal.Draw(TopScreen(*node, history, view));
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(next - SteadyClock::now());
    key = terminal.Wait(std::max(wait, std::chrono::milliseconds(0)));
  }
}

}  // namespace nccl_exporter
