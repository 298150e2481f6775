// SPDX-License-Identifier: Apache-2.0
// Verdict on what `nccl-exporter top` shows of a culprit. Pure.
#pragma once

#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/detection/verdict.h"

namespace nccl_exporter::detection {

struct ScreenSize {
  int columns;
  int rows;
  // Its class on the scoreboard: "screen-80x24".
  std::string Class() const {
    return "screen-" + std::to_string(columns) + "x" + std::to_string(rows);
  }
};
inline constexpr std::array<ScreenSize, 2> kScreenSizes{{{80, 24}, {200, 50}}};

// Those that the daemon's findings of a node name: a name by the labels comm and rank.
using FoundCulprits = std::map<std::pair<std::string, std::string>, std::string>;

// A screen that a person sees who opens `top` on the node.
struct Screen {
  int expected_rank = -1;  // global, of the expectation
  std::string moment;      // "first", "end"
  double at_s = 0;         // since the scenario began
  ScreenSize size{};
  FoundCulprits culprits;  // that the daemon named when the screen was opened
  std::string text;
  std::vector<std::string> lacks = {};  // filled by JudgeScreens()
  bool is_asked = false;                // filled by JudgeScreens()
};

// Returns those of "rank", "age" and "cost" that the first finding on the screen lacks. The rank is
// lacking if the finding does not name `culprit`.
std::vector<std::string> LacksOf(const std::string& screen, const std::string& culprit);

// Adds a class for each size. Asked are screens that were opened when the daemon named the expected
// rank.
void JudgeScreens(std::vector<Screen>& screens, const Directory& directory, Verdict& verdict);

}  // namespace nccl_exporter::detection
