// SPDX-License-Identifier: Apache-2.0
// AnswerBudget, the bytes of all bodies that are kept until their clients have taken them. Any
// thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

namespace nccl_exporter::exporter {

// Five pages at the limit of series without compression, or a hundred with it. A slow client keeps
// the page of its own round, so connections alone do not bound the memory of answers. What forged
// segments take leaves so much of the 256 MiB that the chart allows.
inline constexpr size_t kAnswerBudgetBytes = size_t{24} << 20;

// Maximum of an answer of /api/v1/node: some thousand communicators with their history. It is a
// third of the budget, so that there is room for it beside pages and beside its compressed form.
inline constexpr size_t kNodeAnswerBytes = kAnswerBudgetBytes / 3;

// Time that a new body waits for room. A connection that is cut lets its body go within
// milliseconds.
inline constexpr std::chrono::milliseconds kRoomPatience{1000};

class AnswerBudget {
 public:
  using Body = std::shared_ptr<const std::string>;

  explicit AnswerBudget(size_t limit = kAnswerBudgetBytes);
  AnswerBudget(const AnswerBudget&) = delete;
  AnswerBudget& operator=(const AnswerBudget&) = delete;

  // Sets how to get room: `give_way` cuts one answer that is being sent, and returns false if there
  // is none. Empty: there is no way. No call of the one before is under way after the return.
  void SetGiveWay(std::function<bool()> give_way);

  // The body, which counts until its last owner lets it go. Answers that are being sent give way to
  // it. Null if there is no room even then.
  Body Keep(std::string body);

  size_t held() const;

  // Held by the thread that writes a large answer: one is written at a time, because it takes
  // several times its size meanwhile. Any thread.
  std::unique_lock<std::mutex> WriteAlone() { return std::unique_lock(writing_mutex_); }

 private:
  struct State {
    std::mutex mutex{};
    std::condition_variable has_room{};
    size_t held = 0;
  };

  bool GiveWay();

  const size_t limit_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();  // bodies may outlive us
  std::mutex writing_mutex_;
  std::mutex give_way_mutex_;
  std::function<bool()> give_way_;
};

}  // namespace nccl_exporter::exporter
