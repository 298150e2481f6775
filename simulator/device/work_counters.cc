// SPDX-License-Identifier: Apache-2.0
#include "simulator/device/work_counters.h"

#include <algorithm>

namespace nccl_exporter::sim {

void WorkCounters::SetEntries(size_t entries) {
  const std::lock_guard lock(mutex_);
  entry_count_ = entries;
}

uint64_t WorkCounters::Run(bool writes) {
  const std::lock_guard lock(mutex_);
  ++run_;
  if (!writes) return run_;
  entries_.resize(entry_count_);
  Entry& entry = entries_[run_ % entry_count_];
  entry.shown = run_;
  std::erase_if(entry.waits, [&](const EntryWait& wait) { return wait.counter <= run_; });
  return run_;
}

uint64_t WorkCounters::Count() {
  const std::lock_guard lock(mutex_);
  return ++counted_;
}

uint64_t WorkCounters::counted() const {
  const std::lock_guard lock(mutex_);
  return counted_;
}

uint64_t WorkCounters::run() const {
  const std::lock_guard lock(mutex_);
  return run_;
}

void WorkCounters::Wait(const EntryWait& wait) {
  const std::lock_guard lock(mutex_);
  entries_.resize(entry_count_);
  Entry& entry = entries_[wait.counter % entry_count_];
  if (wait.counter > entry.shown) entry.waits.push_back(wait);
}

std::optional<UnendingWait> WorkCounters::Unending() const {
  const std::lock_guard lock(mutex_);
  std::optional<UnendingWait> earliest;
  for (size_t i = 0; i < entries_.size(); ++i) {
    for (const EntryWait& wait : entries_[i].waits) {
      if (earliest && earliest->wait.counter <= wait.counter) continue;
      earliest = UnendingWait{.wait = wait, .entry = i, .shown = entries_[i].shown};
    }
  }
  return earliest;
}

}  // namespace nccl_exporter::sim
