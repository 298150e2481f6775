// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/node_watch.h"

#include <spdlog/spdlog.h>

#include <exception>
#include <utility>

namespace nccl_exporter::exporter {

NodeWatch::NodeWatch(BookSource& books, const Thresholds& thresholds, OnJudgement on_judgement)
    : books_(books),
      on_judgement_(std::move(on_judgement)),
      step_(thresholds.step),
      judge_(std::make_shared<const NodeJudge>(thresholds)),
      thread_(&NodeWatch::Run, this) {}

NodeWatch::~NodeWatch() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  stop_.notify_all();
  thread_.join();
}

void NodeWatch::Read(const std::function<void(const NodeJudge&)>& read) const {
  std::shared_ptr<const NodeJudge> judge;
  {
    const std::lock_guard lock(mutex_);
    judge = judge_;
  }
  read(*judge);
}

void NodeWatch::Run() {
  auto next = std::chrono::steady_clock::now();
  while (true) {
    try {
      Record();
    } catch (const std::exception& error) {
      spdlog::error("a step of the history is missing: {}", error.what());
    }
    // Steps that were missed in a pause of the machine are one long step.
    next = std::max(next + step_, std::chrono::steady_clock::now());
    std::unique_lock lock(mutex_);
    if (stop_.wait_until(lock, next, [this] { return is_stopping_; })) return;
  }
}

void NodeWatch::Record() {
  const std::shared_ptr<const Book> book = books_.Take();
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  // Only this thread replaces judge_, so it may read it without the lock.
  const auto judge = std::make_shared<NodeJudge>(*judge_);
  judge->Record(*book, std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
  const Judgement judgement = judge->Judge(*book->node);
  judge->Keep(judgement);
  {
    const std::lock_guard lock(mutex_);
    judge_ = judge;
  }
  on_judgement_(judgement);
}

}  // namespace nccl_exporter::exporter
