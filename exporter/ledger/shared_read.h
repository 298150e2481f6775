// SPDX-License-Identifier: Apache-2.0
// A read whose result serves several callers: those that come while one is under way share the next
// one.
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
// lifetime. So ten callers at once cost two reads, and with a lifetime any number of callers costs
// one read per lifetime. A caller notes how many reads had begun (begun_ grows before a read looks
// at anything), and then waits for the lock. If a later read has ended by then, its result serves.
// Any thread may call Get(). Reads run one at a time, on the thread of the caller that needs one.
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
    if (latest_number_ > begun_before || IsYoung()) return latest_;
    const uint64_t number = begun_.fetch_add(1) + 1;
    latest_ = read_();
    latest_number_ = number;
    ended_ = std::chrono::steady_clock::now();
    return latest_;
  }

 private:
  bool IsYoung() const {
    return latest_ != nullptr && std::chrono::steady_clock::now() - ended_ < lifetime_;
  }

  const std::function<std::shared_ptr<const Result>()> read_;
  const std::chrono::steady_clock::duration lifetime_;
  std::atomic<uint64_t> begun_{0};
  std::mutex mutex_;  // guards what follows
  std::shared_ptr<const Result> latest_;
  uint64_t latest_number_ = 0;
  std::chrono::steady_clock::time_point ended_;  // of the read of latest_
};

}  // namespace nccl_exporter::exporter
