// SPDX-License-Identifier: Apache-2.0
// Eventually(), which waits for the effect of another process.
#pragma once

#include <chrono>
#include <thread>

namespace nccl_exporter::exporter {

inline void SleepMilliseconds(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

// Repeats `condition` until it is true or the time is over. Returns whether it was true.
template <typename Condition>
bool Eventually(Condition condition, int seconds = 20) {
  for (int i = 0; i < seconds * 50; ++i) {
    if (condition()) return true;
    SleepMilliseconds(20);
  }
  return condition();
}

}  // namespace nccl_exporter::exporter
