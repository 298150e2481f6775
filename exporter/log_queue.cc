// SPDX-License-Identifier: Apache-2.0
#include "exporter/log_queue.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace nccl_exporter::exporter {
namespace {

// Returns what could not be written. Waits for a reader as long as it takes.
std::string_view WriteAll(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd writable{.fd = descriptor, .events = POLLOUT, .revents = 0};
      poll(&writable, 1, -1);
    } else if (errno != EINTR) {
      return text;
    }
  }
  return text;
}

}  // namespace

struct LogQueue::State {
  const int descriptor;
  const size_t limit_bytes;
  std::atomic<uint64_t> dropped{0};
  std::mutex mutex{};  // guards what follows; nobody holds it while the descriptor is written
  std::condition_variable has_changed{};
  std::string waiting{};
  size_t bytes_in_write = 0;
  std::optional<Clock::time_point> write_since{};
  bool is_over = false;
};

LogQueue::LogQueue(int descriptor, size_t limit_bytes)
    : state_(new State{.descriptor = descriptor, .limit_bytes = limit_bytes}) {
  std::thread(Run, state_).detach();
}

LogQueue::~LogQueue() {
  Flush(kLogFlushLimit);
  const std::lock_guard lock(state_->mutex);
  state_->is_over = true;
  state_->has_changed.notify_all();
}

bool LogQueue::Add(std::string_view line) {
  const std::lock_guard lock(state_->mutex);
  if (state_->waiting.size() + state_->bytes_in_write + line.size() > state_->limit_bytes)
    return false;
  state_->waiting += line;
  state_->has_changed.notify_all();
  return true;
}

void LogQueue::CountDropped() { ++state_->dropped; }

uint64_t LogQueue::dropped() const { return state_->dropped; }

bool LogQueue::IsBlocked(Clock::time_point now) const {
  const std::lock_guard lock(state_->mutex);
  return state_->write_since && now - *state_->write_since >= kLogBlockedLimit;
}

bool LogQueue::Flush(std::chrono::milliseconds limit) {
  std::unique_lock lock(state_->mutex);
  return state_->has_changed.wait_for(
      lock, limit, [&] { return state_->waiting.empty() && !state_->write_since; });
}

void LogQueue::Run(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  while (true) {
    state->has_changed.wait(lock, [&] { return state->is_over || !state->waiting.empty(); });
    if (state->is_over) return;
    const std::string text = std::exchange(state->waiting, {});
    state->bytes_in_write = text.size();
    state->write_since = Clock::now();
    lock.unlock();
    const std::string_view lost = WriteAll(state->descriptor, text);
    state->dropped += static_cast<uint64_t>(std::ranges::count(lost, '\n'));
    lock.lock();
    state->bytes_in_write = 0;
    state->write_since.reset();
    state->has_changed.notify_all();
  }
}

}  // namespace nccl_exporter::exporter
