// SPDX-License-Identifier: Apache-2.0
// Pusher, a thread that pushes requests to a receiver of OTLP/HTTP, one after the other. Its
// functions may be called by one thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "exporter/cli/client/plain_get.h"
#include "exporter/exposition/plain_families.h"
#include "exporter/otlp/request_queue.h"

namespace nccl_exporter::exporter::otlp {

enum class PushEnd : uint8_t { kAccepted, kTryAgain, kRefused };

struct PushOutcome {
  PushEnd end;
  std::string reason = {};       // printable; of one that was accepted whole: empty
  uint64_t rejected_points = 0;  // of one that was accepted in part
  std::optional<std::chrono::seconds> retry_after = {};
};

// Longest time that a Retry-After is followed: the queue may be full by then.
inline constexpr std::chrono::seconds kLongestRetryAfter{3600};

// Takes an untrusted answer to a request. 429, 502, 503, 504 and no answer ask for another try.
// Everything else but 2xx is final. `now` is in seconds since the epoch. Pure.
PushOutcome OutcomeOf(const PlainAnswer& answer, int64_t now);

// Pauses between tries grow from the first to the longest one. Each is shortened by up to a half at
// random, so that many nodes do not return together.
struct Pauses {
  std::chrono::milliseconds first{1000}, longest{60000};
};

class Pusher {
 public:
  using Say = std::function<void(const std::string& line)>;  // any thread

  // `endpoint` is the request without a body: address, patience, header fields, TLS. `queue`
  // outlives the object.
  Pusher(PlainRequest endpoint, RequestQueue& queue, Say say, Pauses pauses = {});
  ~Pusher();  // as Finish()
  Pusher(const Pusher&) = delete;
  Pusher& operator=(const Pusher&) = delete;

  // Takes a request into the queue.
  void Add(std::string body);

  // Appends the families of the push itself, whose counters begin at `start_ns`.
  void AddFamilies(int64_t start_ns, std::vector<PlainFamily>& families);

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
  const Pauses pauses_;

  std::mutex mutex_;
  std::condition_variable changed_;
  RequestQueue& queue_;
  std::string said_;  // the latest line, until all is well again
  uint64_t accepted_ = 0, tried_again_ = 0, refused_ = 0, rejected_points_ = 0;
  std::chrono::milliseconds pause_ = pauses_.first;
  bool is_ending_ = false;
  std::chrono::steady_clock::time_point end_by_;
  std::thread thread_;  // last: it uses all others
};

}  // namespace nccl_exporter::exporter::otlp
