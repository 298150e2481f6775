// SPDX-License-Identifier: Apache-2.0
#include "exporter/http/answer_budget.h"

#include <utility>

namespace nccl_exporter::exporter {
namespace {

// For the threads of connections that were cut, before another one is.
constexpr std::chrono::milliseconds kPauseBetweenCuts{5};

}  // namespace

AnswerBudget::AnswerBudget(size_t limit) : limit_(limit) {}

void AnswerBudget::SetGiveWay(std::function<bool()> give_way) {
  const std::lock_guard lock(give_way_mutex_);
  give_way_ = std::move(give_way);
}

bool AnswerBudget::GiveWay() {
  const std::lock_guard lock(give_way_mutex_);
  return give_way_ && give_way_();
}

AnswerBudget::Body AnswerBudget::Keep(std::string body) {
  // The budget counts the capacity. A copy of a large body takes as much for a moment.
  constexpr size_t kSlack = 8;
  if (body.capacity() - body.size() > body.size() / kSlack) body.shrink_to_fit();
  const size_t bytes = body.capacity();
  const auto fits = [&] { return bytes <= limit_ && state_->held <= limit_ - bytes; };
  std::unique_lock lock(state_->mutex);
  const auto deadline = std::chrono::steady_clock::now() + kRoomPatience;
  while (!fits() && bytes <= limit_ && std::chrono::steady_clock::now() < deadline) {
    lock.unlock();
    const bool gave_way = GiveWay();
    lock.lock();
    // Those that were cut before may still be on their way out.
    if (!gave_way) {
      state_->has_room.wait_until(lock, deadline, fits);
      break;
    }
    state_->has_room.wait_for(lock, kPauseBetweenCuts, fits);
  }
  if (!fits()) return nullptr;
  auto kept = std::make_unique<std::string>(std::move(body));
  state_->held += bytes;
  lock.unlock();
  return {kept.release(), [state = state_, bytes](const std::string* left) {
            delete left;
            const std::lock_guard state_lock(state->mutex);
            state->held -= bytes;
            state->has_room.notify_all();
          }};
}

size_t AnswerBudget::held() const {
  const std::lock_guard lock(state_->mutex);
  return state_->held;
}

}  // namespace nccl_exporter::exporter
