// SPDX-License-Identifier: Apache-2.0
// KeptCounters, the derived counters of a daemon and the file that keeps them across its restarts.
// For one thread at a time.
#pragma once

#include <optional>
#include <string>

#include "exporter/ledger/derived_counters.h"
#include "exporter/ledger/state_file.h"

namespace nccl_exporter::exporter {

class KeptCounters {
 public:
  // `directory` of the file; empty: none. A fault is logged, counted, and otherwise ignored: the
  // counters then start as without the file.
  KeptCounters(const std::string& directory, const DerivedTimes& times);

  // Before the snapshot is served, what it derives is in the file: a daemon that is killed has
  // served nothing that its successor does not know.
  void Advance(collector::NodeSnapshot& node);

 private:
  void Count(const StateFault& fault);

  DerivedCounters counters_;
  std::optional<StateFile> file_;
  collector::StateErrorCounts errors_{};
  std::string logged_;  // the latest fault, so that one that lasts is logged once
};

}  // namespace nccl_exporter::exporter
