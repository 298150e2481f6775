// SPDX-License-Identifier: Apache-2.0
#include "simulator/device/work_ring.h"

namespace nccl_exporter::sim {

void WorkRing::Run(const WorkItem& item, int64_t now_ns) {
  items_.push_back(item);
  while (items_.size() > kEntries && items_[kEntries].stop_ns <= now_ns) {
    if (items_.front().is_written) former_[first_ % kEntries] = {first_, items_.front()};
    items_.pop_front();
    ++first_;
  }
}

std::optional<int64_t> WorkRing::ShownNs(uint64_t counter, Edge edge) const {
  if (counter <= former_[counter % kEntries].counter) return INT64_MIN;
  while (counter < first_) counter += kEntries;
  for (; counter <= last(); counter += kEntries) {
    const WorkItem& item = items_[counter - first_];
    if (!item.is_written) continue;
    return item.At(edge) == WorkItem::kNever ? std::nullopt : std::optional(item.At(edge));
  }
  return std::nullopt;
}

const WorkItem* WorkRing::Shown(uint64_t counter, Edge edge, int64_t now_ns) const {
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
