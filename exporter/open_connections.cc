// SPDX-License-Identifier: Apache-2.0
// One list, one lock: there are few connections, and each is touched five times in its life.
#include "exporter/open_connections.h"

#include <algorithm>

namespace nccl_exporter {

bool OpenConnections::MayCome(const std::string& address) {
  const std::lock_guard lock(mutex_);
  const auto of_address = by_address_.find(address);
  return of_address == by_address_.end() || of_address->second < limits_.of_one_address;
}

bool OpenConnections::Add(int socket, const std::string& address, int& gave_way) {
  std::unique_lock lock(mutex_);
  gave_way = 0;
  while (!is_stopping_ && open_.size() >= limits_.all) {
    auto when = Connection::Clock::time_point::max();
    const bool is_one_leaving = std::ranges::any_of(open_, &OpenConnection::has_given_way);
    if (!is_one_leaving && CutOldest(when)) {
      ++gave_way;
    } else if (when == Connection::Clock::time_point::max()) {
      has_changed_.wait(lock);
    } else {
      has_changed_.wait_until(lock, when);
    }
  }
  if (is_stopping_) return false;
  ++by_address_[address];
  unserved_.push_back(&open_.emplace_back(socket, address));
  has_changed_.notify_all();
  return true;
}

bool OpenConnections::CutOldest(Connection::Clock::time_point& when) {
  const auto oldest = std::ranges::find(open_, false, &OpenConnection::has_request);
  if (oldest == open_.end()) return false;
  when = oldest->accepted + limits_.patience;
  if (Connection::Clock::now() < when) return false;
  oldest->has_given_way = true;
  oldest->connection.Cut();
  return true;
}

OpenConnection* OpenConnections::Next() {
  std::unique_lock lock(mutex_);
  has_changed_.wait(lock, [this] { return !unserved_.empty() || (is_stopping_ && open_.empty()); });
  if (unserved_.empty()) return nullptr;
  OpenConnection* const next = unserved_.front();
  unserved_.pop_front();
  return next;
}

void OpenConnections::Remove(OpenConnection* connection) {
  const std::lock_guard lock(mutex_);
  const auto of_address = by_address_.find(connection->address);
  if (--of_address->second == 0) by_address_.erase(of_address);
  open_.remove_if([&](const OpenConnection& other) { return &other == connection; });
  has_changed_.notify_all();
}

bool OpenConnections::BeginAnswer(OpenConnection& connection) {
  const std::lock_guard lock(mutex_);
  connection.has_request = true;
  has_changed_.notify_all();
  return !is_stopping_ && !connection.has_given_way;
}

bool OpenConnections::HasGivenWay(const OpenConnection& connection) {
  const std::lock_guard lock(mutex_);
  return connection.has_given_way || is_stopping_;
}

void OpenConnections::Stop(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  is_stopping_ = true;
  for (const OpenConnection& open : open_) {
    if (!open.has_request) open.connection.Cut();
  }
  has_changed_.notify_all();
  const auto are_gone = [this] { return open_.empty(); };
  if (has_changed_.wait_for(lock, limit, are_gone)) return;
  for (const OpenConnection& open : open_) open.connection.Cut();
  has_changed_.wait(lock, are_gone);
}

}  // namespace nccl_exporter
