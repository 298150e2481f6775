// SPDX-License-Identifier: Apache-2.0
// Lets callers that come while a read is under way share the next one, so that ten scrapes at once cost two reads.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

namespace nccl_exporter {

// A caller never gets a result older than its call: only a read that began after the call started. It notes how many
// reads had begun (begun_ grows before a read looks at anything) and then waits for its turn; if by then a later read
// has ended, its result serves. Any thread may call Get(); reads run one at a time, on the thread of the caller that
// needs one.
template <typename Result>
class SharedRead {
 public:
  explicit SharedRead(std::function<std::shared_ptr<const Result>()> read) : read_(std::move(read)) {}

  std::shared_ptr<const Result> Get() {
    const uint64_t begun_before = begun_.load();
    const std::lock_guard lock(mutex_);
    if (latest_number_ > begun_before) return latest_;
    const uint64_t number = begun_.fetch_add(1) + 1;
    latest_ = read_();
    latest_number_ = number;
    return latest_;
  }

 private:
  const std::function<std::shared_ptr<const Result>()> read_;
  std::atomic<uint64_t> begun_{0};
  std::mutex mutex_;
  std::shared_ptr<const Result> latest_;
  uint64_t latest_number_ = 0;
};

}  // namespace nccl_exporter
