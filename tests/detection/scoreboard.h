// SPDX-License-Identifier: Apache-2.0
// The verdicts of many runs as one table: recall, precision and naming of each class of alerts,
// with their confidence.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/detection/verdict.h"

namespace nccl_exporter::detection {

// Wilson's interval of a share, at 95 %.
struct Share {
  int hits = 0;
  int of = 0;

  double low() const { return Bound(-1); }
  double high() const { return Bound(1); }
  // "97.5 % [91.2, 99.3] 78/80"; "-" of nothing.
  std::string Text() const;
  // {"share", "low", "high", "hits", "of"}; no share of nothing.
  nlohmann::json Json() const;

  // Adds a run with so many alerts; without any it does not count. A run is a hit if all are right:
  // alerts of one run have one cause.
  void Count(int right, int wrong);

 private:
  double Bound(int side) const;
};

class Scoreboard {
 public:
  // Any number of runs; not from several threads at once.
  void Add(const Scenario& scenario, const Verdict& verdict);

  // Delays are in evaluation intervals of this many seconds.
  std::string Table(double evaluation_interval_s) const;
  // The table for programs: "runs", "flawed", "silent", "silent_pages", and "classes" by name.
  nlohmann::json Json(double evaluation_interval_s) const;

  // Runs in which something was not as it should be.
  int flawed_runs() const { return flawed_runs_; }

 private:
  struct ClassSum {
    Share recall;       // of expectations
    Share precision;    // of runs
    Share named_right;  // of runs
    std::vector<double> delays_s;
  };

  std::map<std::string, ClassSum> classes_;
  int runs_ = 0;
  int flawed_runs_ = 0;
  Share quiet_;        // negative runs, and those of them without an alert
  Share quiet_pages_;  // negative runs, and those of them without a finding
};

}  // namespace nccl_exporter::detection
