// SPDX-License-Identifier: Apache-2.0
// Pusher, a thread that pushes requests to a receiver of OTLP/HTTP, one after the other. Its
// functions may be called by one thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "exporter/cli/client/plain_get.h"
#include "exporter/exposition/exposition.h"
#include "exporter/otlp/push_outcome.h"
#include "exporter/otlp/request_queue.h"

namespace nccl_exporter::exporter::otlp {

// Pauses between tries grow from the first to the longest one. Each is shortened by up to a half at
// random, so that many nodes do not return together.
inline constexpr std::chrono::milliseconds kFirstPause{1000}, kLongestPause{60000};

// Takes a line for a person. Any thread.
using Say = std::function<void(const std::string&)>;

class Pusher {
 public:
  // `endpoint` is the request without a body: address, patience, header fields, TLS. `queue`
  // outlives the object.
  Pusher(PlainRequest endpoint, RequestQueue& queue, Say say);
  ~Pusher();  // as Finish()
  Pusher(const Pusher&) = delete;
  Pusher& operator=(const Pusher&) = delete;

  // Takes a request into the queue.
  void Add(std::string body);

  // Families of the push itself, whose counters begin at `start_ns`.
  Exposition Families(int64_t start_ns);

  // Tries the requests of the queue once more, until one is not accepted or the patience for one
  // request is over.
  void Finish();

 private:
  void Run();
  PushOutcome Push(const std::string& body) const;
  // Holds the mutex.
  void Count(const PushOutcome& outcome);
  void SayOnce(const std::string& text);
  std::chrono::milliseconds NextPause(const PushOutcome& outcome);

  const PlainRequest endpoint_;
  const Say say_;

  std::mutex mutex_;
  std::condition_variable changed_;
  RequestQueue& queue_;
  std::string said_;  // the latest line, until all is well again
  uint64_t accepted_ = 0, tried_again_ = 0, refused_ = 0, rejected_points_ = 0;
  std::chrono::milliseconds pause_ = kFirstPause;
  bool is_ending_ = false;
  std::chrono::steady_clock::time_point end_by_;
  std::thread thread_;  // last: it uses all others
};

}  // namespace nccl_exporter::exporter::otlp
