// SPDX-License-Identifier: Apache-2.0
// The test program as a copy of NCCL: its event masks, and the release that it reports.
#include <array>
#include <atomic>
#include <cstddef>

#include "plugin/survival/survival_driver.h"

namespace {

// The last release of each profiler API.
constexpr std::array<int, 8> kReleases{0, 22304, 22500, 22606, 22707, 22809, 23007, 23206};
std::atomic<int> release{0};
std::atomic<bool> is_chosen{false};  // by the test
// One per communicator of a test, so that each sees what it was asked for.
std::array<int, 4096> masks;
std::atomic<size_t> used_masks{0};

}  // namespace

extern "C" __attribute__((visibility("default"))) int ncclGetVersion(int* version) {
  *version = release;
  return 0;
}

namespace nccl_exporter::plugin::survival::nccl {

int& NewMask(int api_version) {
  if (!is_chosen) release = kReleases[static_cast<size_t>(api_version)];
  int& mask = masks[used_masks++ % masks.size()];
  mask = 0;
  return mask;
}

void Report(int nccl_version) {
  release = nccl_version;
  is_chosen = true;
}

}  // namespace nccl_exporter::plugin::survival::nccl
