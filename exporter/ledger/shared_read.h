// SPDX-License-Identifier: Apache-2.0
// SharedRead, a read whose result serves several callers.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

namespace nccl_exporter::exporter {

// A caller gets a result of a read that began after its call, or one that is younger than the
// lifetime. It notes how many reads had begun (begun_ grows before a read looks at anything), and
// then waits for the lock. If a later read has ended by then, its result serves. Any thread may
// call Get(). Reads run one at a time, on the thread of the caller that needs one.
template <typename Result>
class SharedRead {
 public:
  explicit SharedRead(std::function<std::shared_ptr<const Result>()> read,
                      std::chrono::steady_clock::duration lifetime = {})
      : read_(std::move(read)), lifetime_(lifetime) {}

  // Throws what the read throws.
  std::shared_ptr<const Result> Get() {
    const uint64_t begun_before = begun_.load();
    const std::lock_guard lock(mutex_);
    if (auto latest = Latest(begun_before)) return latest;
    Forget();  // so that two results never exist together
    const uint64_t number = begun_.fetch_add(1) + 1;
    std::shared_ptr<const Result> result = read_();
    const std::lock_guard latest_lock(latest_mutex_);
    latest_ = result;
    latest_number_ = number;
    ended_ = std::chrono::steady_clock::now();
    return result;
  }

  // Drops a result that serves no later call; false if there is none. Waits for no read, so the
  // read itself may call it.
  bool Forget() {
    std::shared_ptr<const Result> old;  // freed after the lock
    const std::lock_guard lock(latest_mutex_);
    if (latest_ == nullptr || IsYoung()) return false;
    old.swap(latest_);
    return true;
  }

 private:
  // One of a read that began after `begun_before`, or a young one; null if there is none.
  std::shared_ptr<const Result> Latest(uint64_t begun_before) {
    const std::lock_guard lock(latest_mutex_);
    return latest_number_ > begun_before || IsYoung() ? latest_ : nullptr;
  }
  bool IsYoung() const { return std::chrono::steady_clock::now() - ended_ < lifetime_; }

  const std::function<std::shared_ptr<const Result>()> read_;
  const std::chrono::steady_clock::duration lifetime_;
  std::atomic<uint64_t> begun_{0};
  std::mutex mutex_;         // held during a read
  std::mutex latest_mutex_;  // guards what follows
  std::shared_ptr<const Result> latest_;
  uint64_t latest_number_ = 0;
  std::chrono::steady_clock::time_point ended_;  // of the read of latest_
};

}  // namespace nccl_exporter::exporter
