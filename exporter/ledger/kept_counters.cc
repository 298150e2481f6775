// SPDX-License-Identifier: Apache-2.0
#include "exporter/ledger/kept_counters.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <vector>

namespace nccl_exporter::exporter {

KeptCounters::KeptCounters(const std::string& directory, const DerivedTimes& times)
    : counters_(times) {
  if (directory.empty()) return;
  file_.emplace(directory);
  std::optional<StateFault> fault;
  const std::optional<std::vector<uint64_t>> words = file_->Read(fault);
  if (words && !counters_.Restore(*words)) {
    fault = StateFault{collector::StateError::kDamaged,
                       file_->path() + ": not a state that this daemon writes"};
  }
  if (fault) Count(*fault);
}

void KeptCounters::Advance(collector::NodeSnapshot& node) {
  const auto monotonic = std::chrono::steady_clock::now().time_since_epoch();
  counters_.Advance(node, {.monotonic_ns = std::chrono::nanoseconds(monotonic).count(),
                           .realtime_ns = node.taken_realtime_ns});
  if (!file_) return;
  const std::optional<StateFault> fault = file_->Write(counters_.Words());
  if (fault) {
    Count(*fault);
  } else {
    logged_.clear();
  }
  node.state_errors = errors_;
}

void KeptCounters::Count(const StateFault& fault) {
  ++errors_[static_cast<size_t>(fault.error)];
  if (fault.detail == logged_) return;
  spdlog::warn("derived counters are not kept for the next start: {}", fault.detail);
  logged_ = fault.detail;
}

}  // namespace nccl_exporter::exporter
