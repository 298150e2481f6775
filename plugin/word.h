// SPDX-License-Identifier: Apache-2.0
// The few operations on shared words that the plugin uses, named after their memory order, and its clock.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>

namespace nccl_exporter {

using Word = std::atomic<uint64_t>;

inline uint64_t LoadRelaxed(const Word& word) { return word.load(std::memory_order_relaxed); }
inline uint64_t LoadAcquire(const Word& word) { return word.load(std::memory_order_acquire); }
inline void StoreRelaxed(Word& word, uint64_t value) { word.store(value, std::memory_order_relaxed); }
inline void StoreRelease(Word& word, uint64_t value) { word.store(value, std::memory_order_release); }
inline uint64_t AddRelaxed(Word& word, uint64_t value) { return word.fetch_add(value, std::memory_order_relaxed); }
// True for exactly one caller among those that expect the same value.
inline bool Exchange(Word& word, uint64_t expected, uint64_t desired) {
  return word.compare_exchange_strong(expected, desired, std::memory_order_acq_rel, std::memory_order_relaxed);
}

inline uint64_t ReadClock(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000 + static_cast<uint64_t>(now.tv_nsec);
}
inline uint64_t NowNs() { return ReadClock(CLOCK_MONOTONIC); }

}  // namespace nccl_exporter
