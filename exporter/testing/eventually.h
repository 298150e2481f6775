// SPDX-License-Identifier: Apache-2.0
// Waiting for what another process does.
#pragma once

#include <chrono>
#include <thread>

namespace nccl_exporter {

inline void SleepMilliseconds(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

// Repeats `condition` until it holds or the time is over; says whether it held.
template <typename Condition>
bool Eventually(Condition condition, int seconds = 20) {
  for (int i = 0; i < seconds * 50; ++i) {
    if (condition()) return true;
    SleepMilliseconds(20);
  }
  return condition();
}

}  // namespace nccl_exporter
