// SPDX-License-Identifier: Apache-2.0
#include "simulator/device/polled_channel.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace nccl_exporter::sim {
namespace {

constexpr int64_t kToNextPollNs = 1000;

}  // namespace

void PolledChannel::Run(const WorkItem& item, int64_t now_ns, EventQueue& queue,
                        const Faults& faults) {
  const std::lock_guard lock(mutex_);
  ring_.Run(item, now_ns);
  for (Connection& connection : connections_) {
    if (!connection.waiting.empty()) PollAt(connection, now_ns + kToNextPollNs, queue, faults);
  }
}

void PolledChannel::Append(bool is_receive, PolledWork work, int64_t now_ns, EventQueue& queue,
                           const Faults& faults) {
  const std::lock_guard lock(mutex_);
  Connection& connection = connections_[is_receive ? 1 : 0];
  connection.waiting.push_back({.work = std::move(work)});
  PollAt(connection, now_ns + kToNextPollNs, queue, faults);
}

// A poll that comes too early for anything does no harm, so that those are left that a sooner one
// makes superfluous.
void PolledChannel::PollAt(Connection& connection, int64_t due_ns, EventQueue& queue,
                           const Faults& faults) {
  const int64_t polled_ns = faults.PolledNs(due_ns);
  if (polled_ns >= connection.next_poll_ns) return;
  connection.next_poll_ns = polled_ns;
  queue.Post(polled_ns, [this, &connection, polled_ns, &queue, &faults](int64_t now_ns) {
    const std::lock_guard lock(mutex_);
    if (connection.next_poll_ns == polled_ns) connection.next_poll_ns = INT64_MAX;
    Poll(connection, now_ns, queue, faults);
  });
}

int64_t PolledChannel::Look(Waiting& waiting, int64_t now_ns, bool& is_done) {
  const PolledWork& work = waiting.work;
  const Edge edge = waiting.has_started ? Edge::kStop : Edge::kStart;
  const std::optional<int64_t> shown_ns = ring_.ShownNs(work.counter, edge);
  if (!shown_ns) return INT64_MAX;
  const int64_t delay_ns = edge == Edge::kStart ? work.start_delay_ns : work.stop_delay_ns;
  if (*shown_ns > now_ns - delay_ns) return *shown_ns + delay_ns;
  const PolledWork::Report& report = edge == Edge::kStart ? work.start : work.stop;
  if (report) report(ring_.Shown(work.counter, edge, now_ns), now_ns);
  is_done = waiting.has_started;
  waiting.has_started = true;
  return is_done ? INT64_MAX : now_ns + 1;
}

void PolledChannel::Poll(Connection& connection, int64_t now_ns, EventQueue& queue,
                         const Faults& faults) {
  int64_t next_ns = INT64_MAX;
  for (size_t i = 0; i < connection.waiting.size();) {
    bool is_done = false;
    next_ns = std::min(next_ns, Look(connection.waiting[i], now_ns, is_done));
    if (is_done)
      connection.waiting.erase(connection.waiting.begin() + static_cast<std::ptrdiff_t>(i));
    if (is_in_order_) {
      if (is_done && !connection.waiting.empty()) next_ns = now_ns + 1;
      break;
    }
    if (!is_done) ++i;
  }
  if (next_ns < INT64_MAX) PollAt(connection, next_ns, queue, faults);
}

}  // namespace nccl_exporter::sim
