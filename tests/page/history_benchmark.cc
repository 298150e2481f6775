// SPDX-License-Identifier: Apache-2.0
// Time for which the page blocks its browser's main thread while it shows 10,560 rows of history
// (88 collectives of 120 steps), beside an empty page of the same run. A block is a task of 50 ms
// or more, as PerformanceObserver reports it; a gap is the time between two frames.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "exporter/testing/eventually.h"
#include "tests/page/page.h"

namespace nccl_exporter {
namespace {

using nlohmann::json;

constexpr int kRounds = 3;
constexpr int kWatchedMilliseconds = 9000;  // the load and four answers

// Runs before the page's scripts, so that their start counts, and after states.js, whose task does
// not.
constexpr char kObserver[] = R"(
  window.blocks = [];
  window.gaps = [];
  const prepared = performance.now();
  new PerformanceObserver((list) => {
    for (const { startTime, duration } of list.getEntries()) {
      if (startTime >= prepared) window.blocks.push(duration);
    }
  }).observe({ type: 'longtask' });
  let last = null;
  const frame = (now) => {
    if (last !== null) window.gaps.push(now - last);
    last = now;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
)";

// The address that opens the first COUNT communicators, as the page itself writes it.
constexpr char kOpenOf[] =
    "'#' + nodeInState('history').communicators.slice(0, COUNT).map(({ comm, ranks, uid, "
    "nccl_job, namespace }) => 'open=' + encodeURIComponent([comm, ranks, uid, nccl_job, "
    "namespace].join('/'))).join('&')";

std::string Opened(const std::string& count) {
  std::string text = kOpenOf;
  return text.replace(text.find("COUNT"), 5, count);
}

void Measure(Page& page, const std::string& name, const std::string& state,
             const std::string& hash) {
  page.Show(state, hash);
  exporter::SleepMilliseconds(kWatchedMilliseconds);
  const json blocks = page.Evaluate("blocks"), gaps = page.Evaluate("gaps");
  const json charts = page.Evaluate("document.querySelectorAll('.plot').length");
  const auto longest = [](const json& all) {
    double most = 0;
    for (const json& one : all) most = std::max(most, one.get<double>());
    return most;
  };
  std::printf("| %-28s | %6d | %6zu | %10.0f ms | %10.0f ms |\n", name.c_str(), charts.get<int>(),
              blocks.size(), longest(blocks), longest(gaps));
  std::fflush(stdout);
}

int Run() {
  Page page;
  page.Show("history");
  const std::string one = page.Evaluate(Opened("1")), all = page.Evaluate(Opened("88"));
  page.browser().RunFirst(kObserver);
  std::puts("| page                         | charts | blocks | longest block |  longest gap  |");
  std::puts("|------------------------------|--------|--------|---------------|---------------|");
  for (int round = 0; round < kRounds; ++round) {
    Measure(page, "empty", "empty", "");
    Measure(page, "10,560 rows, all folded", "history", "");
    Measure(page, "10,560 rows, one open", "history", one);
    Measure(page, "10,560 rows, all 88 open", "history", all);
  }
  return 0;
}

}  // namespace
}  // namespace nccl_exporter

int main() {
  if (nccl_exporter::Browser::Path().empty()) {
    std::fputs("Chromium is not installed (Debian: chromium-headless-shell)\n", stderr);
    return 1;
  }
  return nccl_exporter::Run();
}
