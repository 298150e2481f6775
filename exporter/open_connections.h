// SPDX-License-Identifier: Apache-2.0
// Who is connected, from accept to close: the limits on connections, and who gives way.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <string>

#include "exporter/connection.h"

namespace nccl_exporter {

struct OpenConnection {
  OpenConnection(int socket, std::string peer_address) : connection(socket), address(std::move(peer_address)) {}

  Connection connection;
  const std::string address;
  const Connection::Clock::time_point accepted = Connection::Clock::now();
  // Guarded by OpenConnections.
  bool has_request = false;  // its request is complete
  bool has_given_way = false;
};

// Any thread.
class OpenConnections {
 public:
  struct Limits {
    size_t all;
    int of_one_address;
    std::chrono::milliseconds patience;  // with one that waits for its request
  };
  explicit OpenConnections(Limits limits) : limits_(limits) {}

  // Whether the address may have one more.
  bool MayCome(const std::string& address);

  // Waits until there is room for one more, for which whoever waited longest for its request may be cut; `gave_way` is
  // how many were. Takes over the socket then, or returns false once Stop() was called. One thread at a time.
  bool Add(int socket, const std::string& address, int& gave_way);

  // The next one that nobody serves, until it is handed to Remove(); null once Stop() was called.
  OpenConnection* Next();
  void Remove(OpenConnection* connection);

  // The request is complete. False where the connection has given way, or the server stops: no answer is due.
  bool BeginAnswer(OpenConnection& connection);
  bool HasGivenWay(const OpenConnection& connection);

  // Lets in no more, cuts those that wait for their request, and the others after `limit`; returns when all are gone.
  void Stop(std::chrono::milliseconds limit);

 private:
  // Cuts one where that may be; else says when one may be.
  bool CutOldest(Connection::Clock::time_point& when);

  const Limits limits_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable has_changed_;
  bool is_stopping_ = false;
  std::list<OpenConnection> open_;  // oldest first
  std::deque<OpenConnection*> unserved_;
  std::map<std::string, int> by_address_;  // those above 0
};

}  // namespace nccl_exporter
