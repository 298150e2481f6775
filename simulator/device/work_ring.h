// SPDX-License-Identifier: Apache-2.0
// Ring by which the kernels of a channel report to the host. Each work item has a counter, and
// writes it with its time into one of 64 entries when it starts, and into one of 64 others when it
// stops. An item without the bit of kernel events has a counter, too, and writes nothing.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>

namespace nccl_exporter::sim {

enum class Edge : uint8_t { kStart, kStop };

// Times are those of the job.
struct WorkItem {
  static constexpr int64_t kNever = INT64_MAX;

  int64_t start_ns = 0;
  int64_t stop_ns = 0;
  bool is_written = true;

  int64_t At(Edge edge) const { return edge == Edge::kStart ? start_ns : stop_ns; }
};

// One channel, as the device writes and the host polls it. Items run one after the other; counters
// begin with 1.
class WorkRing {
 public:
  static constexpr uint64_t kEntries = 64;

  // The device gets one more item.
  void Run(const WorkItem& item, int64_t now_ns);
  // When the entry of `counter` will first show that counter or a greater one. Nothing if the
  // device does not know such an item yet.
  std::optional<int64_t> ShownNs(uint64_t counter, Edge edge) const;
  // Item that the entry shows at a time that is not before: of the items that share it, the newest
  // that has come so far. Null if nothing was ever written there, as for counter 0.
  const WorkItem* Shown(uint64_t counter, Edge edge, int64_t now_ns) const;

  uint64_t last() const { return first_ + items_.size() - 1; }

 private:
  // Item that an entry shows if it is no longer kept.
  struct Former {
    uint64_t counter = 0;
    WorkItem item;
  };

  uint64_t first_ = 1;  // counter of the oldest item kept: older ones have run
  std::deque<WorkItem> items_;
  std::array<Former, kEntries> former_;
};

inline void WorkRing::Run(const WorkItem& item, int64_t now_ns) {
  items_.push_back(item);
  while (items_.size() > kEntries && items_[kEntries].stop_ns <= now_ns) {
    if (items_.front().is_written) former_[first_ % kEntries] = {first_, items_.front()};
    items_.pop_front();
    ++first_;
  }
}

inline std::optional<int64_t> WorkRing::ShownNs(uint64_t counter, Edge edge) const {
  if (counter <= former_[counter % kEntries].counter) return INT64_MIN;
  while (counter < first_) counter += kEntries;
  for (; counter <= last(); counter += kEntries) {
    const WorkItem& item = items_[counter - first_];
    if (!item.is_written) continue;
    return item.At(edge) == WorkItem::kNever ? std::nullopt : std::optional(item.At(edge));
  }
  return std::nullopt;
}

inline const WorkItem* WorkRing::Shown(uint64_t counter, Edge edge, int64_t now_ns) const {
  const Former& former = former_[counter % kEntries];
  const WorkItem* newest = former.counter > 0 ? &former.item : nullptr;
  while (counter >= first_ + kEntries) counter -= kEntries;
  while (counter < first_) counter += kEntries;
  for (; counter <= last() && items_[counter - first_].At(edge) <= now_ns; counter += kEntries) {
    if (items_[counter - first_].is_written) newest = &items_[counter - first_];
  }
  return newest;
}

}  // namespace nccl_exporter::sim
