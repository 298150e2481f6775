// SPDX-License-Identifier: Apache-2.0
// Keeps the daemon's judge informed: a thread that takes a snapshot every step of the history.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "exporter/findings/node_judge.h"
#include "exporter/ledger/book_source.h"

namespace nccl_exporter::exporter {

class NodeWatch {
 public:
  using OnJudgement = std::function<void(const Judgement&)>;

  // Begins at once. A snapshot that fails is logged, and leaves its step out: the judge stays that
  // of the step before. `books` outlives this object. `on_judgement` gets the judgement of each
  // step, on the thread of this object.
  explicit NodeWatch(
      BookSource& books, const Thresholds& thresholds = {},
      OnJudgement on_judgement = [](const Judgement&) {});
  // Waits for the step that is under way.
  ~NodeWatch();
  NodeWatch(const NodeWatch&) = delete;
  NodeWatch& operator=(const NodeWatch&) = delete;

  // Calls `read` with the judge of the newest step, which does not change meanwhile. Any thread.
  // Nothing is locked meanwhile: a long `read` delays neither the history nor other readers.
  void Read(const std::function<void(const NodeJudge&)>& read) const;

 private:
  void Run();
  void Record();

  BookSource& books_;
  const OnJudgement on_judgement_;
  mutable std::mutex mutex_;  // guards the pointer judge_, and is_stopping_
  std::condition_variable stop_;
  bool is_stopping_ = false;
  const std::chrono::steady_clock::duration step_;
  // Each step makes a new one, a copy with one step more: readers keep theirs.
  std::shared_ptr<const NodeJudge> judge_;
  std::thread thread_;  // last: it uses what is above
};

}  // namespace nccl_exporter::exporter
