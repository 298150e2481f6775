// SPDX-License-Identifier: Apache-2.0
// SimulatedJob, traces of nodes and GPUs whose clocks are off and drift, and the true times, for
// tests.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "exporter/trace/clock_alignment.h"

namespace nccl_exporter::exporter {

inline constexpr int64_t kUs = 1000, kMs = 1'000'000, kSecond = 1'000'000'000;

// A clock with an offset and a drift against the true time.
struct TrueClock {
  int64_t offset_ns = 0;
  double drift = 0;

  int64_t Read(int64_t true_ns) const {
    return true_ns + offset_ns +
           static_cast<int64_t>(static_cast<double>(true_ns - kSecond) * drift);
  }
  // The true time at which the clock showed `shown_ns`.
  int64_t TrueOf(int64_t shown_ns) const {
    return kSecond +
           static_cast<int64_t>(static_cast<double>(shown_ns - offset_ns - kSecond) / (1 + drift));
  }
};

struct Shape {
  size_t nodes = 4;
  size_t gpus = 2;
  int64_t length_ns = 10 * kSecond;
  int64_t period_ns = 10 * kMs;    // of collectives
  int64_t transfer_ns = 60 * kUs;  // the shortest
  int64_t most_late_ns = 3 * kMs;
  int64_t ahead_ns = 2 * kMs;   // of the host, against its GPU
  bool calls_together = false;  // all ranks at once, before the first one enters
  double most_drift = 20e-6;
  uint64_t seed = 1;
};

// A job whose ranks do AllReduces together, as its nodes and GPUs see it.
class SimulatedJob {
 public:
  explicit SimulatedJob(const Shape& shape) : random_(shape.seed) {
    for (size_t n = 0; n < shape.nodes; ++n) {
      cpus_.push_back({Between(-5 * kMs, 5 * kMs), Drift(shape.most_drift)});
      collector::NodeTrace& node = nodes.emplace_back();
      node.node = "node-" + std::to_string(n);
      // All nodes believe in the same CLOCK_REALTIME.
      node.realtime_offset_ns = 1'700'000'000 * kSecond;
      node.begin_ns = cpus_[n].Read(kSecond);
      node.end_ns = cpus_[n].Read(kSecond + shape.length_ns);
      for (size_t g = 0; g < shape.gpus; ++g) {
        gpus_.push_back({Between(-kSecond, kSecond), Drift(8e-6)});
        collector::TracedCommunicator communicator;
        communicator.has_identity = true;
        communicator.id = 7;
        communicator.ranks = shape.nodes * shape.gpus;
        communicator.rank = n * shape.gpus + g;
        communicator.api_version = 6;
        communicator.gpu_uuid = "GPU-" + std::to_string(g);
        communicator.timing_source = TimingSource::kKernel;
        node.processes.emplace_back().communicators.push_back(communicator);
      }
    }
    for (int64_t at_ns = kSecond + kMs; at_ns < kSecond + shape.length_ns - shape.period_ns;
         at_ns += shape.period_ns)
      Meet(shape, at_ns);
  }

  const TrueClock& Cpu(size_t node) const { return cpus_[node]; }
  const TrueClock& Gpu(const Participation& member) const {
    return gpus_[member.place.node * gpus_.size() / nodes.size() + member.place.process];
  }

  std::vector<collector::NodeTrace> nodes;

 private:
  int64_t Between(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random_);
  }
  double Drift(double most) { return std::uniform_real_distribution<double>(-most, most)(random_); }

  // One rank is late; all leave within microseconds, when the last has entered and the data came.
  void Meet(const Shape& shape, int64_t at_ns) {
    const size_t ranks = shape.nodes * shape.gpus;
    const size_t late = static_cast<size_t>(Between(0, static_cast<int64_t>(ranks) - 1));
    std::vector<int64_t> starts(ranks);
    for (int64_t& start : starts) start = at_ns + Between(0, 200 * kUs);
    starts[late] += Between(0, shape.most_late_ns);
    const int64_t done_ns = std::ranges::max(starts) + shape.transfer_ns + Between(0, 200 * kUs);
    ++sequence_;
    for (size_t rank = 0; rank < ranks; ++rank) {
      const size_t node = rank / shape.gpus;
      const int64_t stop_ns = done_ns + Between(0, 5 * kUs);
      nodes[node].processes[rank % shape.gpus].communicators[0].operations.push_back(
          {.function = Function::kAllReduce,
           .sequence = sequence_,
           .call_ns = cpus_[node].Read(shape.calls_together
                                           ? at_ns - 10 * kUs
                                           : starts[rank] - Between(5 * kUs, shape.ahead_ns)),
           .start_ns = gpus_[rank].Read(starts[rank]) / 32 * 32,
           .stop_ns = gpus_[rank].Read(stop_ns) / 32 * 32,
           .delivered_ns = cpus_[node].Read(stop_ns + Between(10 * kUs, 60 * kUs)),
           .bytes = 1 << 20});
    }
  }

  std::mt19937_64 random_;
  std::vector<TrueClock> cpus_, gpus_;
  uint64_t sequence_ = 0;
};

}  // namespace nccl_exporter::exporter
