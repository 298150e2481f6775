// SPDX-License-Identifier: Apache-2.0
#include "simulator/polled_channel.h"

#include <optional>
#include <utility>

namespace nccl_exporter::sim {
namespace {

constexpr int64_t kToNextPollNs = 1000;

}  // namespace

void PolledChannel::Run(const WorkItem& item, int64_t now_ns, Delivery& delivery, const Faults& faults) {
  const std::lock_guard lock(mutex_);
  ring_.Run(item, now_ns);
  if (!waiting_.empty()) PollAt(now_ns + kToNextPollNs, delivery, faults);
}

uint64_t PolledChannel::Count() {
  const std::lock_guard lock(mutex_);
  return ++counted_;
}

uint64_t PolledChannel::counted() {
  const std::lock_guard lock(mutex_);
  return counted_;
}

void PolledChannel::Append(PolledWork work, int64_t now_ns, Delivery& delivery, const Faults& faults) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(work));
  PollAt(now_ns + kToNextPollNs, delivery, faults);
}

void PolledChannel::PollAt(int64_t due_ns, Delivery& delivery, const Faults& faults) {
  if (std::exchange(will_poll_, true)) return;
  delivery.Post(faults.PolledNs(due_ns),
                [this, &delivery, &faults](int64_t now_ns) { Poll(now_ns, delivery, faults); });
}

void PolledChannel::Poll(int64_t now_ns, Delivery& delivery, const Faults& faults) {
  const std::lock_guard lock(mutex_);
  will_poll_ = false;
  if (waiting_.empty()) return;
  const PolledWork& work = waiting_.front();
  const Edge edge = has_started_ ? Edge::kStop : Edge::kStart;
  const std::optional<int64_t> shown_ns = ring_.ShownNs(work.counter, edge);
  if (!shown_ns) return;  // until the device gets more work
  const int64_t delay_ns = edge == Edge::kStart ? work.start_delay_ns : work.stop_delay_ns;
  if (*shown_ns > now_ns - delay_ns) return PollAt(*shown_ns + delay_ns, delivery, faults);
  const PolledWork::Report& report = edge == Edge::kStart ? work.start : work.stop;
  if (report) report(ring_.Shown(work.counter, edge, now_ns), now_ns);
  has_started_ = edge == Edge::kStart;
  if (edge == Edge::kStop) waiting_.pop_front();
  if (!waiting_.empty()) PollAt(now_ns + 1, delivery, faults);
}

}  // namespace nccl_exporter::sim
