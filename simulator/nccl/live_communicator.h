// SPDX-License-Identifier: Apache-2.0
// A communicator of one rank between its init and its finalize, with the state that NCCL keeps in
// it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "simulator/device/polled_channel.h"
#include "simulator/device/work_counters.h"
#include "simulator/release/play_options.h"
#include "simulator/release/profiler_event.h"
#include "simulator/release/release.h"
#include "simulator/truth/ground_truth_sink.h"
#include "simulator/workload/group.h"

namespace nccl_exporter::sim {

inline constexpr int kMostChannels = 64;  // NCCL's own limit

// One connection of the progress thread: operations on it are polled one after the other.
struct ChannelConnection {
  void* kernel_handle = nullptr;  // NCCL's slot; see Release::ClearsKernelSlots
  int64_t last_due_ns = 0;
  // By the delivering thread, at the latest start:
  int64_t started_ns = 0;       // when it was delivered
  uint64_t started_gpu_ns = 0;  // time that it carried
  WorkItem started_item;        // whose time that was
  bool is_stuck = false;        // by a fault: what the host waits for will never come
};

// Why ncclCommDestroy would not return.
struct DestroyHang {
  int channel = 0;
  UnendingWait wait;
};

struct LiveCommunicator {
  LiveCommunicator(const Communicator& its_shape, uint64_t its_id, int its_rank,
                   const PlayOptions& options, GroundTruthSink& its_truth)
      : shape(its_shape),
        id(its_id),
        rank(its_rank),
        is_named(options.names_communicators),
        truth(its_truth) {
    for (WorkCounters& channel : counters) channel.SetEntries(options.release.RingEntries());
    for (PolledChannel& channel : polled) channel.SetInOrder(options.release.PollsInOrder());
  }

  const Communicator& shape;
  const uint64_t id;
  const int rank;       // in this communicator
  const bool is_named;  // the plugin gets shape.name
  void* context = nullptr;
  std::array<std::array<ChannelConnection, 2>, kMostChannels> connections;  // [channel][is receive]
  std::array<WorkCounters, kMostChannels> counters;
  std::array<PolledChannel, kMostChannels> polled;  // in use where there are faults
  std::map<Function, uint64_t> uploaded;            // operations; by one thread at a time
  std::optional<DestroyHang> destroy_hang;          // seen when it was destroyed
  std::array<uint64_t, 5> sequences{};              // of the collectives, by Function
  uint64_t launches = 0;
  // Until then the proxy operations of earlier launches start; those of the next one come after
  // them (2.27 and later).
  int64_t proxy_starts_due_ns = 0;
  // When the connections of the progress thread are free, by channel, direction and peer.
  std::map<std::array<int, 3>, int64_t> network_free_ns;
  // With stale handles: those that the slots of sends [0] and receives [1] still have. By the
  // progress thread only.
  std::array<std::array<void*, kMostChannels>, 2> stale_transfers{};
  bool was_captured = false;              // the latest group
  std::atomic<bool> is_drifting = false;  // from here on its operations are not timed
  bool is_stuck = false;                  // one of its channels
  std::atomic<Timing> timing = Timing::kNone;
  // Changes of the kernel events' bit where NCCL cannot bear one; see
  // PreparedPlan::CountMaskFaults.
  std::atomic<uint64_t> mask_faults = 0;
  std::atomic<int> first_bit = -1;  // of the bit, in the first task
  GroundTruthSink& truth;

  // The earliest wait of any channel that no kernel will ever end.
  std::optional<DestroyHang> Unending() const {
    for (int channel = 0; channel < kMostChannels; ++channel) {
      if (const auto wait = counters[static_cast<size_t>(channel)].Unending())
        return DestroyHang{channel, *wait};
    }
    return std::nullopt;
  }

  // Durations come from the best source that a mask of this communicator has asked for.
  void NoteMask(uint32_t mask, const Release& release) {
    Timing asked = Timing::kNone;
    if (mask & kProxyOp) asked = Timing::kProxy;
    if ((mask & kKernelCh) && release.HasKernelEvents()) {
      asked = release.HasKernelTimes() ? Timing::kKernel : Timing::kKernelCpu;
    }
    if (asked > timing.load(std::memory_order_relaxed))
      timing.store(asked, std::memory_order_relaxed);
  }
};

}  // namespace nccl_exporter::sim
