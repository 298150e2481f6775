// SPDX-License-Identifier: Apache-2.0
// A channel whose work NCCL's thread polls, with all that can go wrong: the host waits for counters
// that the device writes, and neither knows whether they mean the same work.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>

#include "simulator/device/event_queue.h"
#include "simulator/device/work_ring.h"
#include "simulator/release/fault.h"

namespace nccl_exporter::sim {

// Work that the host waits for. The actions get what the ring shows, which need not be the work
// that was meant, and is null where nothing was written yet; an empty action is an event that is
// lost.
struct PolledWork {
  using Report = std::function<void(const WorkItem* shown, int64_t now_ns)>;
  static constexpr uint64_t kNeverWritten = UINT64_MAX / 2;

  uint64_t counter = 0;
  int64_t start_delay_ns = 0;  // from the device's writing to the poll that finds it
  int64_t stop_delay_ns = 0;
  Report start = {};
  Report stop = {};
};

// One ring, and two connections that are polled: that of receives, and that of everything else. In
// order: the works of a connection are polled one after the other; else each by itself. Any thread
// may call; reports come from the thread of `queue`, which is the same in every call.
class PolledChannel {
 public:
  // Before the first call of another method.
  void SetInOrder(bool is_in_order) { is_in_order_ = is_in_order; }

  // The device gets one more work item.
  void Run(const WorkItem& item, int64_t now_ns, EventQueue& queue, const Faults& faults);
  void Append(bool is_receive, PolledWork work, int64_t now_ns, EventQueue& queue,
              const Faults& faults);

 private:
  struct Waiting {
    PolledWork work;
    bool has_started = false;
  };
  struct Connection {
    std::deque<Waiting> waiting;
    int64_t next_poll_ns = INT64_MAX;
  };

  void PollAt(Connection& connection, int64_t due_ns, EventQueue& queue, const Faults& faults);
  void Poll(Connection& connection, int64_t now_ns, EventQueue& queue, const Faults& faults);
  // Returns when to look again: INT64_MAX when the work is done, or when the device must have more
  // work first.
  int64_t Look(Waiting& waiting, int64_t now_ns, bool& is_done);

  std::mutex mutex_;
  WorkRing ring_;
  bool is_in_order_ = true;
  std::array<Connection, 2> connections_;
};

}  // namespace nccl_exporter::sim
