// SPDX-License-Identifier: Apache-2.0
// Connections from accept to close: their limits, which of them give way, and which are cut off.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "exporter/http/refusal.h"

namespace nccl_exporter::exporter {

// One of them. OpenConnections alone changes it.
struct OpenConnection {
  using Clock = std::chrono::steady_clock;

  // In the order in which connections give way to another one: waits for a request, has its
  // password checked or waits for that, has its answer sent, has it made.
  enum class State : uint8_t { kWaits, kIsChecked, kIsSent, kIsAnswered };

  int socket;
  std::string address;
  std::shared_ptr<const void> held;
  Clock::time_point deadline;
  State state = State::kWaits;
  bool is_cut = false;
  Clock::time_point since = Clock::now();  // that it waits, is answered or is sent
  std::optional<Refusal> gave_way = {};    // to another one: because of which limit
};

// Connections are cut by shutdown() of their sockets: a thread that reads or writes finds them
// closed by their peer. Safe to use from any thread; of one connection, one thread at a time.
class OpenConnections {
 public:
  struct Limits {
    size_t all;
    size_t of_one_address;
    std::chrono::milliseconds request;  // from accept to the end of the first request
    std::chrono::milliseconds idle;     // from an answer to the end of the next request
    std::chrono::milliseconds part;     // for the next part of an answer
    std::chrono::milliseconds answer;   // for all of it
  };
  // `on_refusal` is called under a lock.
  OpenConnections(Limits limits, RefusalCounter on_refusal);
  ~OpenConnections();
  OpenConnections(const OpenConnections&) = delete;
  OpenConnections& operator=(const OpenConnections&) = delete;

  // Whether one more of that address may come. Where there are as many as may be, of the address or
  // in all, the one that waits longest for a request gives way. If all are being answered, the
  // address gets no more than its limit. In all, the one whose password has waited the longest to
  // be checked gives way, then the answer that has been sent the longest, and then the oldest of
  // the address with most connections: an address that has none gets one.
  bool MakeRoom(const std::string& address);

  // One that came. The socket stays open until Remove(), which others own; `held` is kept until
  // then.
  OpenConnection& Add(int socket, std::string address, std::shared_ptr<const void> held = nullptr);
  // A request is complete; false where the connection has been cut. Then the answer begins to be
  // sent, goes on, and ends, taken by the peer or not.
  bool BeginAnswer(OpenConnection& connection);
  void SetChecked(OpenConnection& connection, bool is_checked);
  void BeginSending(OpenConnection& connection);
  void OnSent(OpenConnection& connection);
  void EndAnswer(OpenConnection& connection, bool is_taken);
  // A request ended without an answer of ours. It is counted as refused: by the limit for which its
  // connection gave way, or else by `cause`.
  void EndUnanswered(OpenConnection& connection, Refusal cause);
  void Remove(OpenConnection& connection);

  // Cuts the answer that has been sent the longest. False if none is being sent.
  bool GiveWay(Refusal cause);

  // Lets in no more, cuts those that wait for a request, and the others after `limit`.
  void Stop(std::chrono::milliseconds limit);

 private:
  using Clock = OpenConnection::Clock;
  using State = OpenConnection::State;

  bool MakeRoomOf(const std::string& address);
  bool MakeRoomInAll(const std::string& address);
  // The first to give way, and of equals the one that has been in its state for the longest, of
  // those that are not cut and for which `is_one` is true; null if there is none.
  template <typename IsOne>
  OpenConnection* FirstToGiveWay(IsOne is_one);
  size_t CountOf(const std::string& address) const;
  bool LetGiveWay(OpenConnection* connection, Refusal cause);
  void Cut(OpenConnection& connection);
  void Watch();

  const Limits limits_;
  const RefusalCounter on_refusal_;
  std::mutex mutex_;  // guards what follows, and connections
  std::condition_variable has_changed_;
  std::list<OpenConnection> open_;
  bool is_stopping_ = false;
  bool is_over_ = false;
  std::thread watch_;  // cuts those whose time is over
};

}  // namespace nccl_exporter::exporter
