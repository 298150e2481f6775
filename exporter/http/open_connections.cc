// SPDX-License-Identifier: Apache-2.0
#include "exporter/http/open_connections.h"

#include <sys/socket.h>

#include <algorithm>
#include <tuple>
#include <utility>

namespace nccl_exporter::exporter {

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
  return !is_stopping_ && MakeRoomOf(address) && MakeRoomInAll(address);
}

template <typename IsOne>
OpenConnection* OpenConnections::FirstToGiveWay(IsOne is_one) {
  OpenConnection* first = nullptr;
  for (OpenConnection& connection : open_) {
    if (connection.is_cut || !is_one(connection)) continue;
    if (first == nullptr ||
        std::tie(connection.state, connection.since) < std::tie(first->state, first->since))
      first = &connection;
  }
  return first;
}

size_t OpenConnections::CountOf(const std::string& address) const {
  return static_cast<size_t>(std::ranges::count_if(open_, [&](const OpenConnection& connection) {
    return !connection.is_cut && connection.address == address;
  }));
}

// No answer of an address is cut for a further connection of it.
bool OpenConnections::MakeRoomOf(const std::string& address) {
  if (CountOf(address) < limits_.of_one_address) return true;
  OpenConnection* const waiting = FirstToGiveWay([&](const OpenConnection& connection) {
    return connection.state == State::kWaits && connection.address == address;
  });
  return LetGiveWay(waiting, Refusal::kConnectionsPerAddress);
}

// Fewer passwords may wait than there are connections (kWaitingPasswordChecks), so that a right one
// is not cut for as long as others are in a request or between two.
bool OpenConnections::MakeRoomInAll(const std::string& address) {
  const auto open = std::ranges::count(open_, false, &OpenConnection::is_cut);
  if (static_cast<size_t>(open) < limits_.all) return true;
  OpenConnection* victim = FirstToGiveWay(
      [](const OpenConnection& connection) { return connection.state != State::kIsAnswered; });
  if (victim == nullptr) {
    const size_t own = CountOf(address) + 1;  // an address takes no place of one that has fewer
    size_t most = own;
    for (const OpenConnection& connection : open_)
      most = std::max(most, CountOf(connection.address));
    victim = FirstToGiveWay([&](const OpenConnection& connection) {
      return most > own && CountOf(connection.address) == most;
    });
  }
  return LetGiveWay(victim, Refusal::kConnectionLimit);
}

// A new connection is refused where nobody gives way to it.
bool OpenConnections::LetGiveWay(OpenConnection* connection, Refusal cause) {
  if (connection == nullptr) return on_refusal_(cause), false;
  connection->gave_way = cause;
  Cut(*connection);
  return true;
}

bool OpenConnections::GiveWay(Refusal cause) {
  const std::lock_guard lock(mutex_);
  OpenConnection* const longest = FirstToGiveWay(
      [](const OpenConnection& connection) { return connection.state == State::kIsSent; });
  return longest != nullptr && LetGiveWay(longest, cause);
}

OpenConnection& OpenConnections::Add(int socket, std::string address,
                                     std::shared_ptr<const void> held) {
  const std::lock_guard lock(mutex_);
  OpenConnection& connection = open_.emplace_back(
      OpenConnection{socket, std::move(address), std::move(held), Clock::now() + limits_.request});
  if (is_stopping_) Cut(connection);
  has_changed_.notify_all();
  return connection;
}

bool OpenConnections::BeginAnswer(OpenConnection& connection) {
  const std::lock_guard lock(mutex_);
  if (connection.is_cut) return false;
  connection.state = State::kIsAnswered;
  connection.since = Clock::now();
  // The time that the answer takes to be made is ours, not the client's.
  connection.deadline = Clock::time_point::max();
  return true;
}

void OpenConnections::SetChecked(OpenConnection& connection, bool is_checked) {
  const std::lock_guard lock(mutex_);
  connection.state = is_checked ? State::kIsChecked : State::kIsAnswered;
}

void OpenConnections::BeginSending(OpenConnection& connection) {
  const std::lock_guard lock(mutex_);
  connection.state = State::kIsSent;
  connection.since = Clock::now();
  connection.deadline = connection.since + limits_.part;
  has_changed_.notify_all();
}

// Each part that the client takes gives it time for the next, up to the limit of the whole answer.
void OpenConnections::OnSent(OpenConnection& connection) {
  const std::lock_guard lock(mutex_);
  connection.deadline = std::min(Clock::now() + limits_.part, connection.since + limits_.answer);
}

void OpenConnections::EndAnswer(OpenConnection& connection, bool is_taken) {
  const std::lock_guard lock(mutex_);
  if (!is_taken) on_refusal_(connection.gave_way.value_or(Refusal::kSlowClient));
  connection.state = State::kWaits;
  connection.since = Clock::now();
  connection.deadline = connection.since + limits_.idle;
  if (is_stopping_) Cut(connection);
  has_changed_.notify_all();
}

// A connection that was cut to make room is counted by that reason, and not as a bad request.
void OpenConnections::EndUnanswered(OpenConnection& connection, Refusal cause) {
  const std::lock_guard lock(mutex_);
  on_refusal_(connection.gave_way.value_or(cause));
}

void OpenConnections::Remove(OpenConnection& connection) {
  const std::lock_guard lock(mutex_);
  open_.remove_if([&](const OpenConnection& other) { return &other == &connection; });
  has_changed_.notify_all();
}

// The socket is shut down, not closed: its thread in the library sees the end, and closes it. So
// the number cannot name another connection in between.
void OpenConnections::Cut(OpenConnection& connection) {
  connection.is_cut = true;
  shutdown(connection.socket, SHUT_RDWR);
}

// Sleeps until the next deadline, or until the connections change; uses no time in between.
void OpenConnections::Watch() {
  std::unique_lock lock(mutex_);
  while (!is_over_) {
    auto next = Clock::time_point::max();
    for (OpenConnection& connection : open_) {
      if (connection.is_cut) continue;
      if (connection.deadline <= Clock::now()) {
        Cut(connection);
      } else {
        next = std::min(next, connection.deadline);
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
    if (connection.state == State::kWaits) Cut(connection);
  }
  has_changed_.wait_for(lock, limit, [this] {
    return std::ranges::all_of(
        open_, [](const OpenConnection& connection) { return connection.state == State::kWaits; });
  });
  for (OpenConnection& connection : open_) Cut(connection);
}

}  // namespace nccl_exporter::exporter
