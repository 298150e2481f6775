// SPDX-License-Identifier: Apache-2.0
// NamedRanks, the ranks and nodes of a job that a person looks at first, each process and GPU once.
// Pure, for any thread.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "exporter/cli/job/job_place.h"
#include "exporter/cli/job/job_state.h"

namespace nccl_exporter::exporter {

struct NamedRank {
  JobPlace place;  // in the first of its communicators; of a node: without a rank
  std::vector<std::pair<std::string, std::string>> communicators = {};  // id and name
  std::vector<std::string> alerts = {};  // names of those that fire about it
  bool is_critical = false;              // one of them is
  double since = 0;                      // of the first of them; 0: not known
  Life life = Life::kLives;
  bool is_reported = true;                // a daemon has it now
  std::string function = {};              // the other call that it is in; empty: not known
  double behind = 0;                      // operations
  std::optional<double> late_share = {};  // of the time that the others wait for it

  bool Has(std::string_view alert) const;
  // "ended, behind by 1"; the names of its alerts where there is nothing else to say.
  std::string StateText() const;
  // "world and 11 more".
  std::string CommunicatorsText() const;
};

struct NamedRanks {
  // Those that an alert names, then dead and stopped ones for which a living rank waits, or in
  // whose communicator one goes on. The ones that are behind come before those that are late.
  std::vector<NamedRank> named;
  // Those that rules have recorded, but no alert names: the proof is not complete.
  std::vector<NamedRank> perhaps;
};

NamedRanks NamedRanksOf(const JobState& state);

}  // namespace nccl_exporter::exporter
