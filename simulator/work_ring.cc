// SPDX-License-Identifier: Apache-2.0
#include "simulator/work_ring.h"

namespace nccl_exporter::sim {

void WorkRing::Run(const WorkItem& item, int64_t now_ns) {
  items_.push_back(item);
  while (items_.size() > kEntries && items_[kEntries].stop_ns <= now_ns) {
    items_.pop_front();
    ++first_;
  }
}

std::optional<int64_t> WorkRing::ShownNs(uint64_t counter, Edge edge) const {
  if (counter < first_) return INT64_MIN;
  if (counter > last()) return std::nullopt;
  const int64_t shown_ns = items_[counter - first_].At(edge);
  if (shown_ns == WorkItem::kNever) return std::nullopt;
  return shown_ns;
}

const WorkItem* WorkRing::Shown(uint64_t counter, Edge edge, int64_t now_ns) const {
  while (counter < first_) counter += kEntries;
  const WorkItem* newest = nullptr;
  for (; counter <= last() && items_[counter - first_].At(edge) <= now_ns; counter += kEntries) {
    newest = &items_[counter - first_];
  }
  return newest;
}

}  // namespace nccl_exporter::sim
