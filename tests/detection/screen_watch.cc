// SPDX-License-Identifier: Apache-2.0
#include "tests/detection/screen_watch.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <utility>

#include "exporter/testing/eventually.h"

namespace nccl_exporter::detection {
namespace {

constexpr int kPollMilliseconds = 250;
// For a `top` that has to start and to ask the daemon: it asks every 2 s.
constexpr int kPatienceMilliseconds = 6000;

std::string HeadOf(const std::string& screen) { return screen.substr(0, screen.find('\n')); }

bool IsComplete(const std::string& screen, const FoundCulprits& culprits) {
  return std::ranges::any_of(
      culprits, [&](const auto& culprit) { return LacksOf(screen, culprit.second).empty(); });
}

// The first screen of this size that has all, else the last one of the time.
std::string ScreenOf(exporter::Tmux& terminal, ScreenSize size, const FoundCulprits& culprits) {
  terminal.Resize(size.columns, size.rows);
  const std::string old_head = HeadOf(terminal.Screen());  // its clock moves with each drawing
  std::string screen;
  for (int waited = 0; waited < kPatienceMilliseconds; waited += kPollMilliseconds) {
    exporter::SleepMilliseconds(kPollMilliseconds);
    screen = terminal.Screen();
    if (HeadOf(screen) != old_head && IsComplete(screen, culprits)) break;
  }
  return screen;
}

}  // namespace

bool ScreenWatch::Look(const std::string& moment, double at_s, const FoundCulprits& culprits) {
  if (look_.valid() && look_.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
    return false;
  look_ = std::async(std::launch::async, [this, screen = Screen{.expected_rank = expected_rank_,
                                                                .moment = moment,
                                                                .at_s = at_s,
                                                                .culprits = culprits,
                                                                .text = ""}] { TakeAll(screen); });
  return true;
}

std::vector<Screen> ScreenWatch::TakeScreens() {
  if (look_.valid()) look_.wait();
  return std::exchange(screens_, {});
}

void ScreenWatch::TakeAll(const Screen& screen) {
  std::unique_ptr<exporter::Tmux> terminal;
  for (const ScreenSize size : kScreenSizes) {
    Screen& taken = screens_.emplace_back(screen);
    taken.size = size;
    try {
      if (terminal == nullptr)
        terminal = std::make_unique<exporter::Tmux>(top_, size.columns, size.rows);
      taken.text = ScreenOf(*terminal, size, screen.culprits);
    } catch (const std::runtime_error& error) {
      taken.text = error.what();
    }
  }
}

}  // namespace nccl_exporter::detection
