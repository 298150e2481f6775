// SPDX-License-Identifier: Apache-2.0
// Verdict on the alerts of one run, by what its scenario expects. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/detection/scenario.h"

namespace nccl_exporter::detection {

// An alert as Alertmanager showed it.
struct PagedAlert {
  std::map<std::string, std::string> labels;
  double started_s = 0;      // firing, since the scenario began
  double seen_s = 0;         // the last time that it was shown
  std::string culprit = {};  // of a finding: "global rank 3", as its sentences name the rank
  std::string named = {};    // the rank or node that it names, by the truth; for the reader

  std::string Label(const std::string& name) const {
    const auto label = labels.find(name);
    return label == labels.end() ? "" : label->second;
  }
};

// Global ranks behind the ranks of communicators, by the ground truth.
struct Directory {
  std::map<std::pair<std::string, std::string>, int> global_ranks;  // by labels comm and rank
  int ranks_per_node = 8;

  // The rank that an alert names: by its labels comm and rank, else by global_rank, else by node and
  // gpu, as an alert about a process of several ranks does. Nothing if it names none.
  std::optional<int> RankOf(const PagedAlert& alert) const;
  // The node: of the rank, else the number that its label `node` or `instance` begins with.
  std::optional<int> NodeOf(const PagedAlert& alert) const;
};

// Verdict on one class of alerts in one run.
struct ClassVerdict {
  int expected = 0;      // expectations
  int met = 0;           // by an alert that names whom it should
  int true_alarms = 0;   // alerts that were expected
  int false_alarms = 0;  // alerts that were not
  int named_right = 0;   // of the true alarms that must name a rank
  int named_wrong = 0;
  std::vector<double> delays_s;  // from what is expected to the first alarm that is right
};

// While something lasts, its alerts may be gone for so long: they must not end and fire again.
inline constexpr double kLongestGapSeconds = 4;
// After its end they may stay for so long: the windows of rates, the retention and the hold.
inline constexpr double kLongestRestSeconds = 30;

struct Verdict {
  std::map<std::string, ClassVerdict> classes;
  std::vector<std::string> complaints;  // one line for everything that is not as it should be
};

// By the alert's name; "" if it has none.
std::string ClassOf(const PagedAlert& alert, const std::map<std::string, std::string>& class_of);

// Adds the findings that the daemons must have where those alerts are expected: classes that begin
// with "page-". The node of a late rank or of a culprit names it; a node that is late as a whole
// cannot know, and may name one of its ranks. A process with several ranks is found by a rank of
// its own choice. A finding of a hang is expected once, however severe it becomes.
Scenario WithPageExpectations(Scenario scenario);
inline bool IsPageClass(const std::string& its_class) { return its_class.starts_with("page-"); }

// An alert without a class is of no consequence: it only informs.
// An alert (not a finding) that meets an expectation must stay until the end of the scenario, or
// until `to` of the expectation, and be over kLongestRestSeconds after that.
Verdict Judge(const Scenario& scenario, const std::vector<PagedAlert>& alerts,
              const Directory& directory, const std::map<std::string, std::string>& class_of);

}  // namespace nccl_exporter::detection
