// SPDX-License-Identifier: Apache-2.0
// NodeWatch, a thread that takes a snapshot for the daemon's judge in each step of the history.
#pragma once

#include <chrono>
#include <condition_variable>
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

  // A snapshot that fails is logged, and its step is left out. `books` outlives this object.
  // `on_judgement` gets the judgement of each step, on the thread of this object.
  explicit NodeWatch(
      BookSource& books, const Thresholds& thresholds = {},
      OnJudgement on_judgement = [](const Judgement&) {});
  // Waits for the step that is under way.
  ~NodeWatch();
  NodeWatch(const NodeWatch&) = delete;
  NodeWatch& operator=(const NodeWatch&) = delete;

  // Calls `read` with the judge of the newest step, which never changes. Nothing is locked
  // meanwhile. Any thread.
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
  // Each step replaces it by a copy with one step more.
  std::shared_ptr<const NodeJudge> judge_;
  std::thread thread_;  // last: it uses what is above
};

}  // namespace nccl_exporter::exporter
