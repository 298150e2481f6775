// SPDX-License-Identifier: Apache-2.0
// Screens of a person who opens `nccl-exporter top` on the node of an expected culprit while a
// scenario is played.
#pragma once

#include <future>
#include <string>
#include <vector>

#include "exporter/testing/tmux.h"
#include "tests/detection/screen.h"

namespace nccl_exporter::detection {

// Not thread-safe. Screens are taken in a thread of its own: the run goes on.
class ScreenWatch {
 public:
  // `top` is the shell command.
  ScreenWatch(std::string top, int expected_rank)
      : top_(std::move(top)), expected_rank_(expected_rank) {}

  // Opens `top`, takes a screen of each size and closes it. Returns at once, with false if the look
  // before is not over. `culprits` are those that the daemon names now.
  bool Look(const std::string& moment, double at_s, const FoundCulprits& culprits);

  // Waits for the last look. A screen that could not be taken has the reason as its text.
  std::vector<Screen> TakeScreens();

 private:
  void TakeAll(const Screen& screen);

  const std::string top_;
  const int expected_rank_;
  std::vector<Screen> screens_;  // of the thread while look_ is not ready
  std::future<void> look_;       // the last member: its destructor waits for the thread
};

}  // namespace nccl_exporter::detection
