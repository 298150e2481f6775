// SPDX-License-Identifier: Apache-2.0
// One scenario played in real time: its jobs with the real plugin, what is done to those that watch
// them, and the alerts that came of it.
#pragma once

#include <stdexcept>
#include <vector>

#include "tests/detection/parity.h"
#include "tests/detection/rule_set.h"
#include "tests/detection/scenario.h"
#include "tests/detection/screen.h"
#include "tests/detection/verdict.h"

namespace nccl_exporter::detection {

// The machine could not keep up, so that the run could not even begin.
struct VoidRun : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct PlayedScenario {
  // Why the machine could not keep up, so that the verdict says nothing; empty: it could.
  std::string busy;
  Verdict verdict;
  std::vector<PagedAlert> alerts;  // and findings, by their start
  std::vector<Screen> screens;     // that were taken of `top`
  ParityResult parity;             // of a scenario with one node
};

// Takes scenario.seconds and a little more. Throws std::runtime_error where something does not work
// at all.
PlayedScenario RunScenario(const Scenario& scenario, const RuleSet& rules);

}  // namespace nccl_exporter::detection
