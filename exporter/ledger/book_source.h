// SPDX-License-Identifier: Apache-2.0
// BookSource, snapshots of the node and their books for scrapes, web UI, history and watchdog.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "exporter/ledger/book.h"
#include "exporter/ledger/shared_read.h"
#include "exporter/ledger/state_log.h"

namespace nccl_exporter::exporter {

// A snapshot that takes longer does not end by itself: a read of a segment hangs.
inline constexpr std::chrono::seconds kSnapshotHangLimit{30};

// Safe to use from any thread. Callers share snapshots as SharedRead has it.
class BookSource {
 public:
  using TakeBook = std::function<std::shared_ptr<const Book>()>;

  // `take` is called on the threads of the callers of Take(), on one at a time. Without
  // `is_logging` nothing is logged before BeginLog().
  explicit BookSource(TakeBook take, bool is_logging = true);

  // Logs what the snapshots have from now on. Any thread.
  void BeginLog() { is_logging_ = true; }

  // A snapshot that began after the call. What has changed since the one before is logged. Throws
  // what `take` throws.
  std::shared_ptr<const Book> Take() { return books_.Get(); }

  // Whether one was taken.
  bool is_ready() const { return is_ready_; }
  // Whether one has been under way for kSnapshotHangLimit. Does not wait for it.
  bool HangsAt(std::chrono::steady_clock::time_point now) const {
    const std::chrono::steady_clock::duration begun{begun_.load()};
    return begun.count() != 0 && now.time_since_epoch() - begun >= kSnapshotHangLimit;
  }

 private:
  StateLog log_;
  std::atomic<bool> is_logging_;
  std::atomic<bool> is_ready_ = false;
  std::atomic<int64_t> begun_ = 0;  // of the snapshot under way, by the steady clock; 0: none is
  SharedRead<Book> books_;
};

inline BookSource::BookSource(TakeBook take, bool is_logging)
    : is_logging_(is_logging), books_([this, take = std::move(take)] {
        begun_ = std::chrono::steady_clock::now().time_since_epoch().count();
        const auto end = [](std::atomic<int64_t>* begun) { *begun = 0; };
        const std::unique_ptr<std::atomic<int64_t>, decltype(end)> under_way(&begun_, end);
        std::shared_ptr<const Book> book = take();
        if (is_logging_) log_.Observe(*book->node);
        is_ready_ = true;
        return book;
      }) {}

}  // namespace nccl_exporter::exporter
