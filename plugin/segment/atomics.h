// SPDX-License-Identifier: Apache-2.0
// Operations on shared atomics that the plugin uses, named after their memory order, its bounded
// lock, and its clock. Any thread.
#pragma once

#include <time.h>

#include <atomic>
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
inline uint64_t AddRelaxed(AtomicU64& word, uint64_t value) {
  return word.fetch_add(value, std::memory_order_relaxed);
}
// For one thread at a time: if two threads add at once, one of the two increments is lost. Costs
// 0.02 readings of the clock, a fetch_add 0.23.
inline void ExclusiveAdd(AtomicU64& word, uint64_t value) {
  StoreRelaxed(word, LoadRelaxed(word) + value);
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
  // nullptr: no other thread can be here, and nothing is locked.
  explicit TryLock(std::atomic<bool>* is_taken)
      : is_taken_(is_taken), is_ours_(is_taken == nullptr) {
    constexpr int kAttempts = 64;
    for (int i = 0; i < kAttempts && !is_ours_; ++i)
      is_ours_ = !is_taken->exchange(true, std::memory_order_acquire);
  }
  ~TryLock() {
    if (is_ours_ && is_taken_ != nullptr) is_taken_->store(false, std::memory_order_release);
  }
  TryLock(const TryLock&) = delete;
  TryLock& operator=(const TryLock&) = delete;
  explicit operator bool() const { return is_ours_; }

 private:
  std::atomic<bool>* is_taken_;
  bool is_ours_;
};

inline uint64_t ReadClock(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000 + static_cast<uint64_t>(now.tv_nsec);
}
inline uint64_t NowNs() { return ReadClock(CLOCK_MONOTONIC); }

}  // namespace nccl_exporter::plugin
