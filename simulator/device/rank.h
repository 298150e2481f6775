// SPDX-License-Identifier: Apache-2.0
// One rank of this process: its GPU with its clock, and the threads that NCCL and CUDA run for it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "simulator/device/clock_mode.h"
#include "simulator/device/event_queue.h"
#include "simulator/workload/hash_random.h"

namespace nccl_exporter::sim {

// The clock of one simulated GPU, as kernels read it: off by an offset, drifting, ticking in steps.
class GpuClock {
 public:
  // `epoch_ns` is what a perfect clock would show when the job began.
  GpuClock(uint64_t seed, int global_rank, int64_t epoch_ns, int64_t granularity_ns)
      : start_ns_(epoch_ns +
                  Between(HashRandom(seed, global_rank, 1), -kMostOffsetNs, kMostOffsetNs)),
        drift_ppb_(Between(HashRandom(seed, global_rank, 2), -kMostDriftPpb, kMostDriftPpb)),
        granularity_ns_(granularity_ns) {}

  // Time that the GPU shows `job_ns` after the job began.
  uint64_t Read(int64_t job_ns) const {
    const int64_t ns = start_ns_ + job_ns + job_ns / 1000 * drift_ppb_ / 1000000;
    return static_cast<uint64_t>(ns - ns % granularity_ns_);
  }

 private:
  static constexpr int64_t kMostOffsetNs = 5000000;
  // 8 ppm: a common crystal against one disciplined by NTP.
  static constexpr int64_t kMostDriftPpb = 8000;

  static int64_t Between(uint64_t bits, int64_t least, int64_t most) {
    return least + static_cast<int64_t>(Fraction(bits) * static_cast<double>(most - least));
  }

  int64_t start_ns_;
  int64_t drift_ppb_;
  int64_t granularity_ns_;
};

class Rank {
 public:
  // `use_gpu` makes the rank's GPU the current one of a thread.
  Rank(int global_rank, const GpuClock& gpu_clock, const ClockMode& clock_mode,
       bool has_profiler_thread, const std::function<void()>& use_gpu,
       int64_t most_ahead_ns = EventQueue::kMostAheadNs)
      : global_rank_(global_rank),
        gpu_clock_(gpu_clock),
        proxy_(std::make_unique<EventQueue>(clock_mode, use_gpu, most_ahead_ns)),
        profiler_(has_profiler_thread
                      ? std::make_unique<EventQueue>(clock_mode, use_gpu, most_ahead_ns)
                      : nullptr),
        host_(std::make_unique<EventQueue>(
            clock_mode, [] {}, most_ahead_ns)) {}

  int global_rank() const { return global_rank_; }
  const GpuClock& gpu_clock() const { return gpu_clock_; }

  EventQueue& proxy() { return *proxy_; }
  // The thread of NCCL that delivers kernel events.
  EventQueue& kernel_events() { return profiler_ ? *profiler_ : *proxy_; }
  // CUDA's thread for host functions, and NCCL's for groups of non-blocking communicators.
  EventQueue& host() { return *host_; }

  void SetHorizon(int64_t job_ns) {
    ForEachThread([&](EventQueue& thread) { thread.SetHorizon(job_ns); });
  }
  // The calling thread goes on to this time: everything due before is delivered first.
  void GoOnTo(int64_t job_ns) {
    SetHorizon(job_ns);
    ForEachThread([&](EventQueue& thread) { thread.WaitDelivered(job_ns); });
  }
  // Until nothing is left to be delivered; returns when that is.
  int64_t Drain(int64_t now_ns) {
    ForEachThread([&](EventQueue& thread) { now_ns = thread.Drain(now_ns); });
    return now_ns;
  }

 private:
  // The host thread first: it gives the others work.
  template <typename Do>
  void ForEachThread(Do action) {
    action(*host_);
    action(*proxy_);
    if (profiler_) action(*profiler_);
  }

  int global_rank_;
  GpuClock gpu_clock_;
  std::unique_ptr<EventQueue> proxy_;
  std::unique_ptr<EventQueue> profiler_;
  std::unique_ptr<EventQueue> host_;
};

}  // namespace nccl_exporter::sim
