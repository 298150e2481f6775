// SPDX-License-Identifier: Apache-2.0
#include "exporter/http/open_connections.h"

#include <sys/socket.h>

#include <algorithm>
#include <utility>

namespace nccl_exporter::exporter {

OpenConnection::OpenConnection(OpenConnections& all, int socket, std::string address,
                               std::shared_ptr<const void> held, Clock::time_point deadline)
    : all_(all),
      socket_(socket),
      address_(std::move(address)),
      held_(std::move(held)),
      deadline_(deadline) {}

OpenConnections::OpenConnections(Limits limits, RefusalCounter on_refusal)
    : limits_(limits), on_refusal_(std::move(on_refusal)), watch_([this] { Watch(); }) {}

OpenConnections::~OpenConnections() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  has_changed_.notify_all();
  watch_.join();
}

// The limit of one address comes first: a client that opens many connections displaces its own.
bool OpenConnections::MakeRoom(const std::string& address) {
  const std::lock_guard lock(mutex_);
  if (is_stopping_) return false;
  const auto is_of_address = [&](const OpenConnection& connection) {
    return connection.address_ == address;
  };
  return MakeRoomAmong(is_of_address, limits_.of_one_address, Refusal::kConnectionsPerAddress) &&
         MakeRoomAmong([](const OpenConnection&) { return true; }, limits_.all,
                       Refusal::kConnectionLimit);
}

// The connection that has waited longest without an answer under way gives way. One that is being
// answered is never cut for another client.
template <typename IsOne>
bool OpenConnections::MakeRoomAmong(IsOne is_one, size_t limit, Refusal cause) {
  size_t count = 0;
  OpenConnection* longest = nullptr;  // that waits
  for (OpenConnection& connection : open_) {
    if (connection.is_cut_ || !is_one(connection)) continue;
    ++count;
    const bool waits_longer = longest == nullptr || connection.since_ < longest->since_;
    if (!connection.is_answering_ && waits_longer) longest = &connection;
  }
  if (count < limit) return true;
  if (longest == nullptr) {
    on_refusal_(cause);
    return false;
  }
  longest->gave_way_ = cause;
  Cut(*longest);
  return true;
}

OpenConnection& OpenConnections::Add(int socket, std::string address,
                                     std::shared_ptr<const void> held) {
  const std::lock_guard lock(mutex_);
  OpenConnection& connection = open_.emplace_back(*this, socket, std::move(address),
                                                  std::move(held), Clock::now() + limits_.request);
  if (is_stopping_) Cut(connection);
  has_changed_.notify_all();
  return connection;
}

bool OpenConnections::BeginAnswer(OpenConnection& connection) {
  const std::lock_guard lock(mutex_);
  if (connection.is_cut_) return false;
  connection.is_answering_ = true;
  // The time that the answer takes to be made is ours, not the client's.
  connection.deadline_ = Clock::time_point::max();
  return true;
}

void OpenConnections::BeginSending(OpenConnection& connection) {
  const std::lock_guard lock(mutex_);
  connection.since_ = Clock::now();
  connection.deadline_ = connection.since_ + limits_.part;
  has_changed_.notify_all();
}

// Each part that the client takes gives it time for the next, up to the limit of the whole answer.
void OpenConnections::OnSent(OpenConnection& connection) {
  const std::lock_guard lock(mutex_);
  connection.deadline_ = std::min(Clock::now() + limits_.part, connection.since_ + limits_.answer);
}

void OpenConnections::EndAnswer(OpenConnection& connection, bool is_taken) {
  const std::lock_guard lock(mutex_);
  if (!is_taken) on_refusal_(Refusal::kSlowClient);
  connection.is_answering_ = false;
  connection.since_ = Clock::now();
  connection.deadline_ = connection.since_ + limits_.idle;
  if (is_stopping_) Cut(connection);
  has_changed_.notify_all();
}

// A connection that was cut to make room is counted by that reason, and not as a bad request.
void OpenConnections::EndUnanswered(OpenConnection& connection, Refusal cause) {
  const std::lock_guard lock(mutex_);
  on_refusal_(connection.gave_way_.value_or(cause));
}

void OpenConnections::Remove(OpenConnection& connection) {
  const std::lock_guard lock(mutex_);
  open_.remove_if([&](const OpenConnection& other) { return &other == &connection; });
  has_changed_.notify_all();
}

// The socket is shut down, not closed: its thread in the library sees the end, and closes it. So
// the number cannot name another connection in between.
void OpenConnections::Cut(OpenConnection& connection) {
  connection.is_cut_ = true;
  shutdown(connection.socket_, SHUT_RDWR);
}

// Sleeps until the next deadline, or until the connections change; uses no time in between.
void OpenConnections::Watch() {
  std::unique_lock lock(mutex_);
  while (!is_over_) {
    auto next = Clock::time_point::max();
    for (OpenConnection& connection : open_) {
      if (connection.is_cut_) continue;
      if (connection.deadline_ <= Clock::now()) {
        Cut(connection);
      } else {
        next = std::min(next, connection.deadline_);
      }
    }
    if (next == Clock::time_point::max()) {
      has_changed_.wait(lock);
    } else {
      has_changed_.wait_until(lock, next);
    }
  }
}

// Answers that are under way may end within the limit; a scrape that has begun is not lost by a
// restart of the daemon.
void OpenConnections::Stop(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  is_stopping_ = true;
  for (OpenConnection& connection : open_) {
    if (!connection.is_answering_) Cut(connection);
  }
  has_changed_.wait_for(
      lock, limit, [this] { return std::ranges::none_of(open_, &OpenConnection::is_answering_); });
  for (OpenConnection& connection : open_) Cut(connection);
}

}  // namespace nccl_exporter::exporter
