// SPDX-License-Identifier: Apache-2.0
// Clock of the plugin in tests that play a communicator step by step: it stands unless the test
// moves it. For one source file of a test, which is linked with --wrap=clock_gettime.
#pragma once

#include <time.h>

#include <cstdint>

namespace nccl_exporter::plugin {

inline uint64_t virtual_ns = 0;  // CLOCK_MONOTONIC

inline constexpr uint64_t kUs = 1000;
inline constexpr uint64_t kMs = 1000 * kUs;
inline constexpr uint64_t kGpuOffsetNs = 77'000'000'000;  // of the GPU's clock

}  // namespace nccl_exporter::plugin

extern "C" int __wrap_clock_gettime(clockid_t, timespec* time) {
  time->tv_sec = static_cast<time_t>(nccl_exporter::plugin::virtual_ns / 1'000'000'000);
  time->tv_nsec = static_cast<long>(nccl_exporter::plugin::virtual_ns % 1'000'000'000);
  return 0;
}
