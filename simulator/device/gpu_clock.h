// SPDX-License-Identifier: Apache-2.0
// The clock of one simulated GPU, as kernels read it: off by an offset, drifting, ticking in steps.
#pragma once

#include <cstdint>

#include "simulator/workload/hash_random.h"

namespace nccl_exporter::sim {

class GpuClock {
 public:
  // `epoch_ns` is what a perfect clock would show when the job began.
  GpuClock(uint64_t seed, int global_rank, int64_t epoch_ns, int64_t granularity_ns)
      : start_ns_(epoch_ns +
                  Between(HashRandom(seed, global_rank, 1), -kMostOffsetNs, kMostOffsetNs)),
        drift_ppb_(Between(HashRandom(seed, global_rank, 2), -kMostDriftPpb, kMostDriftPpb)),
        granularity_ns_(granularity_ns) {}

  // What the GPU shows `job_ns` after the job began.
  uint64_t Read(int64_t job_ns) const {
    const int64_t ns = start_ns_ + job_ns + job_ns / 1000 * drift_ppb_ / 1000000;
    return static_cast<uint64_t>(ns - ns % granularity_ns_);
  }

 private:
  static constexpr int64_t kMostOffsetNs = 5000000;
  static constexpr int64_t kMostDriftPpb =
      8000;  // 8 ppm: a common crystal against one disciplined by NTP

  static int64_t Between(uint64_t bits, int64_t least, int64_t most) {
    return least + static_cast<int64_t>(Fraction(bits) * static_cast<double>(most - least));
  }

  int64_t start_ns_;
  int64_t drift_ppb_;
  int64_t granularity_ns_;
};

}  // namespace nccl_exporter::sim
