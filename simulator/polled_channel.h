// SPDX-License-Identifier: Apache-2.0
// A channel whose work NCCL's thread polls, with all that can go wrong: the host waits for counters that the device
// writes, and neither knows whether they mean the same work.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>

#include "simulator/delivery.h"
#include "simulator/fault.h"
#include "simulator/work_ring.h"

namespace nccl_exporter::sim {

// What the host waits for. The actions get what the ring shows, which need not be the work that was meant, and is null
// where nothing was written yet; an empty action is an event that is lost.
struct PolledWork {
  using Report = std::function<void(const WorkItem* shown, int64_t now_ns)>;
  static constexpr uint64_t kNeverWritten = UINT64_MAX / 2;

  uint64_t counter = 0;
  int64_t start_delay_ns = 0;  // from the device's writing to the poll that finds it
  int64_t stop_delay_ns = 0;
  Report start = {};
  Report stop = {};
};

// Work is polled in the order of appending, one after the other. Any thread may call; reports come from the thread of
// `delivery`, which is the same in every call.
class PolledChannel {
 public:
  // The device gets one more work item; the host counts one more. Neither implies the other.
  void Run(const WorkItem& item, int64_t now_ns, Delivery& delivery, const Faults& faults);
  uint64_t Count();
  uint64_t counted();

  void Append(PolledWork work, int64_t now_ns, Delivery& delivery, const Faults& faults);

 private:
  void Poll(int64_t now_ns, Delivery& delivery, const Faults& faults);
  void PollAt(int64_t due_ns, Delivery& delivery, const Faults& faults);

  std::mutex mutex_;
  WorkRing ring_;
  uint64_t counted_ = 0;
  std::deque<PolledWork> waiting_;
  bool has_started_ = false;  // the first of them
  bool will_poll_ = false;
};

}  // namespace nccl_exporter::sim
