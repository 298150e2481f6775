// SPDX-License-Identifier: Apache-2.0
// Operations on shared atomics that the plugin uses, named after their memory order, its bounded
// lock, and its clock. Any thread.
#pragma once

#include <time.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace nccl_exporter::plugin {

using AtomicU64 = std::atomic<uint64_t>;

template <typename T>
T LoadRelaxed(const std::atomic<T>& word) {
  return word.load(std::memory_order_relaxed);
}
template <typename T>
T LoadAcquire(const std::atomic<T>& word) {
  return word.load(std::memory_order_acquire);
}
template <typename T>
void StoreRelaxed(std::atomic<T>& word, std::type_identity_t<T> value) {
  word.store(value, std::memory_order_relaxed);
}
template <typename T>
void StoreRelease(std::atomic<T>& word, std::type_identity_t<T> value) {
  word.store(value, std::memory_order_release);
}
template <typename... T>
void Zero(std::atomic<T>&... words) {
  (StoreRelaxed(words, T{}), ...);
}
template <typename T, size_t kSize>
void Zero(std::array<std::atomic<T>, kSize>& words) {
  for (std::atomic<T>& word : words) StoreRelaxed(word, T{});
}
// Words of the segment that are written once, and changed by an event afterwards.
inline void StoreRelaxed(uint64_t& word, uint64_t value) {
  std::atomic_ref<uint64_t>(word).store(value, std::memory_order_relaxed);
}
inline void StoreRelease(uint64_t& word, uint64_t value) {
  std::atomic_ref<uint64_t>(word).store(value, std::memory_order_release);
}
inline uint64_t AddRelaxed(AtomicU64& word, uint64_t value) {
  return word.fetch_add(value, std::memory_order_relaxed);
}
// For one thread at a time: if two threads add at once, one of the two increments is lost. Costs
// 0.02 readings of the clock, a fetch_add 0.23.
inline void ExclusiveAdd(AtomicU64& word, uint64_t value) {
  StoreRelaxed(word, LoadRelaxed(word) + value);
}
// The value before. `is_alone`: no other thread adds at the same time.
inline uint64_t Add(AtomicU64& word, uint64_t value, bool is_alone) {
  if (!is_alone) return AddRelaxed(word, value);
  const uint64_t before = LoadRelaxed(word);
  return StoreRelaxed(word, before + value), before;
}
// True for exactly one caller among those that expect the same value.
inline bool CompareExchange(AtomicU64& word, uint64_t expected, uint64_t desired) {
  return word.compare_exchange_strong(expected, desired, std::memory_order_acq_rel,
                                      std::memory_order_relaxed);
}

// A lock that is tried a bounded number of times. Whether it was taken is asked for: code under it
// must do without.
//   1. At most one thread has read `false` from is_taken since it was last released, so at most one
//      holds the lock.
//   2. The exchange acquires what the release of the former holder published.
//   3. A holder keeps it for about 50 ns, and 64 attempts take ten times as long. All fail only if
//      the holder was preempted, or if several threads follow each other.
class TryLock {
 public:
  explicit TryLock(std::atomic<bool>* is_taken) : is_taken_(is_taken) {
    constexpr int kAttempts = 64;
    for (int i = 0; i < kAttempts && !is_ours_; ++i)
      is_ours_ = !is_taken->exchange(true, std::memory_order_acquire);
  }
  ~TryLock() {
    if (is_ours_) is_taken_->store(false, std::memory_order_release);
  }
  TryLock(const TryLock&) = delete;
  TryLock& operator=(const TryLock&) = delete;
  explicit operator bool() const { return is_ours_; }

 private:
  std::atomic<bool>* is_taken_;
  bool is_ours_ = false;
};

inline uint64_t ReadClock(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000 + static_cast<uint64_t>(now.tv_nsec);
}
inline uint64_t NowNs() { return ReadClock(CLOCK_MONOTONIC); }

}  // namespace nccl_exporter::plugin
