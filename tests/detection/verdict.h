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
  std::string culprit = {};  // of a finding: "global rank 3", as its sentences name the rank

  std::string Label(const std::string& name) const {
    const auto label = labels.find(name);
    return label == labels.end() ? "" : label->second;
  }
};

// Who is behind a communicator's rank, by the ground truth.
struct Directory {
  std::map<std::pair<std::string, std::string>, int> global_ranks;  // by labels comm and rank
  int ranks_per_node = 8;

  // The rank that an alert names: by its labels comm and rank, else by global_rank. Nothing if it
  // names none.
  std::optional<int> RankOf(const PagedAlert& alert) const;
  // The node: of the rank, else the number that its label `node` or `instance` begins with.
  std::optional<int> NodeOf(const PagedAlert& alert) const;
};

// Of one class of alerts in one run.
struct ClassVerdict {
  int expected = 0;      // expectations
  int met = 0;           // by an alert that names whom it should
  int true_alarms = 0;   // alerts that were expected
  int false_alarms = 0;  // alerts that were not
  int named_right = 0;   // of the true alarms where somebody is to be named
  int named_wrong = 0;
  std::vector<double> delays_s;  // from what is expected to the first alarm that is right
};

struct Verdict {
  std::map<std::string, ClassVerdict> classes;
  std::vector<std::string> complaints;  // one line for everything that is not as it should be
};

// What the daemons' findings must be where those alerts are expected: classes that begin with
// "page-". The node of a late rank or of a culprit names it; a node that is late as a whole cannot
// know.
Scenario WithPageExpectations(Scenario scenario);
inline bool IsPageClass(const std::string& its_class) { return its_class.starts_with("page-"); }

// `class_of` gives the class of an alert by its name; an alert that is missing there, or whose
// class is "", is of no consequence: it only informs.
Verdict Judge(const Scenario& scenario, const std::vector<PagedAlert>& alerts,
              const Directory& directory, const std::map<std::string, std::string>& class_of);

}  // namespace nccl_exporter::detection
