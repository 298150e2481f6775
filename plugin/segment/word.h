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
// For words that are written by one thread at a time: an increment at a quarter of the price.
inline void AddAlone(Word& word, uint64_t value) { StoreRelaxed(word, LoadRelaxed(word) + value); }
// True for exactly one caller among those that expect the same value.
inline bool Exchange(Word& word, uint64_t expected, uint64_t desired) {
  return word.compare_exchange_strong(expected, desired, std::memory_order_acq_rel, std::memory_order_relaxed);
}

// A turn at words that are written by one thread at a time. Never waits for long: another thread's turn takes some 50
// ns; if it has been interrupted in it, this one goes without.
class Turn {
 public:
  explicit Turn(std::atomic<bool>* is_taken) : is_taken_(is_taken) {
    constexpr int kAttempts = 64;
    for (int i = 0; i < kAttempts && !is_ours_; ++i) is_ours_ = !is_taken->exchange(true, std::memory_order_acquire);
  }
  ~Turn() {
    if (is_ours_) is_taken_->store(false, std::memory_order_release);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
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

}  // namespace nccl_exporter
