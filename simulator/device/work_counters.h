// SPDX-License-Identifier: Apache-2.0
// The counters of one channel's work on both sides, the device's and the host's, and what the host
// waits for.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "proto/collective.h"

namespace nccl_exporter::sim {

// An operation that waits until an entry of the ring shows `counter` or a greater one.
struct EntryWait {
  uint64_t counter = 0;
  Function function = Function::kAllReduce;
  uint64_t number = 0;  // of the operations of this function on the communicator, from 1
};

struct UnendingWait {
  EntryWait wait;
  size_t entry = 0;
  uint64_t shown = 0;  // counter that the entry shows in the end; 0: nothing was ever written there
};

// The device gives every work item the next counter c, and writes it into entry c modulo the number
// of entries if the item has the bit of kernel events; without the bit the entry stays as it is.
// Any thread may call any method.
class WorkCounters {
 public:
  void SetEntries(size_t entries);

  // The device runs one more item. Returns its counter.
  uint64_t Run(bool writes);
  // The host counts one more. Returns the new count.
  uint64_t Count();
  uint64_t counted() const;
  uint64_t run() const;

  void Wait(const EntryWait& wait);
  // The earliest wait that does not end when all kernels have; nothing if all end.
  std::optional<UnendingWait> Unending() const;

 private:
  struct Entry {
    uint64_t shown = 0;
    std::vector<EntryWait> waits;  // those that it does not satisfy yet
  };

  mutable std::mutex mutex_;
  uint64_t run_ = 0;
  uint64_t counted_ = 0;
  size_t entry_count_ = 64;
  std::vector<Entry> entries_;  // made at first use: most channels have none
};

inline void WorkCounters::SetEntries(size_t entries) {
  const std::lock_guard lock(mutex_);
  entry_count_ = entries;
}

inline uint64_t WorkCounters::Run(bool writes) {
  const std::lock_guard lock(mutex_);
  ++run_;
  if (!writes) return run_;
  entries_.resize(entry_count_);
  Entry& entry = entries_[run_ % entry_count_];
  entry.shown = run_;
  std::erase_if(entry.waits, [&](const EntryWait& wait) { return wait.counter <= run_; });
  return run_;
}

inline uint64_t WorkCounters::Count() {
  const std::lock_guard lock(mutex_);
  return ++counted_;
}

inline uint64_t WorkCounters::counted() const {
  const std::lock_guard lock(mutex_);
  return counted_;
}

inline uint64_t WorkCounters::run() const {
  const std::lock_guard lock(mutex_);
  return run_;
}

inline void WorkCounters::Wait(const EntryWait& wait) {
  const std::lock_guard lock(mutex_);
  entries_.resize(entry_count_);
  Entry& entry = entries_[wait.counter % entry_count_];
  if (wait.counter > entry.shown) entry.waits.push_back(wait);
}

inline std::optional<UnendingWait> WorkCounters::Unending() const {
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
