// SPDX-License-Identifier: Apache-2.0
// Answers of receivers: statuses, Retry-After, partial success, and garbage. Receivers that are
// away for longer than the longest pause.
#include "exporter/otlp/pusher.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "collector/testing/scratch_directory.h"

namespace nccl_exporter::exporter::otlp {
namespace {

constexpr int64_t kNow = 784111770;  // 1994-11-06 08:49:30 UTC

PushOutcome OutcomeOfText(const std::string& text) {
  PlainAnswer answer;
  if (!TakeApart(text, true, answer)) answer.fault = "an answer without its end";
  return OutcomeOf(answer, kNow);
}

PushOutcome OutcomeWith(int status, const std::string& fields = "", const std::string& body = "") {
  return OutcomeOfText("HTTP/1.1 " + std::to_string(status) + " X\r\n" + fields +
                       "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
}

TEST(PushOutcomeTest, StatusesSayWhetherToTryAgain) {
  for (const int status : {200, 202, 204})
    EXPECT_EQ(OutcomeWith(status).end, PushEnd::kAccepted) << status;
  for (const int status : {429, 502, 503, 504})
    EXPECT_EQ(OutcomeWith(status).end, PushEnd::kTryAgain) << status;
  for (const int status : {301, 400, 401, 403, 404, 408, 413, 500, 501})
    EXPECT_EQ(OutcomeWith(status).end, PushEnd::kRefused) << status;
}

TEST(PushOutcomeTest, WithoutAStatusThereIsAnotherTry) {
  PlainAnswer none;
  none.fault = "Connection refused";
  EXPECT_EQ(OutcomeOf(none, kNow).end, PushEnd::kTryAgain);
  EXPECT_EQ(OutcomeOf(none, kNow).reason, "Connection refused");
  EXPECT_EQ(OutcomeOfText("\x15\x03\x03\r\n").end, PushEnd::kTryAgain);
  EXPECT_EQ(OutcomeOfText("").end, PushEnd::kTryAgain);
}

TEST(PushOutcomeTest, AStatusIsEnoughWhereTheEndIsMissing) {
  EXPECT_EQ(OutcomeOfText("HTTP/1.1 200 OK\r\n\r\n").end, PushEnd::kAccepted);
  EXPECT_EQ(OutcomeOfText("HTTP/1.1 400 Bad\r\n\r\nabc").end, PushEnd::kRefused);
}

TEST(PushOutcomeTest, RetryAfterIsSecondsOrADate) {
  const auto after = [](const std::string& value) {
    const auto seconds = OutcomeWith(503, "Retry-After: " + value + "\r\n").retry_after;
    return seconds ? seconds->count() : -1;
  };
  EXPECT_EQ(after("7"), 7);
  EXPECT_EQ(after("Sun, 06 Nov 1994 08:49:37 GMT"), 7);
  EXPECT_EQ(after("Sun, 06 Nov 1994 08:49:00 GMT"), 0);
  EXPECT_EQ(after("4000000000"), kLongestRetryAfter.count());
  for (const char* const none : {"", "-1", "soon", "5 s", "99999999999999999999"})
    EXPECT_EQ(after(none), -1) << none;
}

TEST(PushOutcomeTest, APartialSuccessHasANumberAndAReason) {
  const PushOutcome outcome = OutcomeWith(200, "", "\x0a\x0b\x08\x05\x12\x07too old");
  EXPECT_EQ(outcome.end, PushEnd::kAccepted);
  EXPECT_EQ(outcome.rejected_points, 5u);
  EXPECT_EQ(outcome.reason, "too old");
  for (const char* const whole : {"", "{}", "<html>", "ok\n", "\x0a\xff garbage", "\x0a\x02\x08"}) {
    EXPECT_EQ(OutcomeWith(200, "", whole).rejected_points, 0u) << whole;
    EXPECT_EQ(OutcomeWith(200, "", whole).reason, "") << whole;
  }
}

TEST(PushOutcomeTest, AReasonIsPrintableAndShort) {
  EXPECT_EQ(OutcomeWith(400, "", "\x12\x03no\x1b").reason, "status 400: no?");
  EXPECT_EQ(OutcomeWith(400, "", "\x1b[2Jno\n").reason, "status 400: ?[2Jno");
  EXPECT_EQ(OutcomeWith(400).reason, "status 400");
  EXPECT_LE(OutcomeWith(400, "", std::string(10000, 'x')).reason.size(), 512u);
}

// Accepts all requests at a Unix socket, one after the other.
class Receiver {
 public:
  explicit Receiver(const std::string& path) : socket_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(socket_, 8), 0);
    thread_ = std::thread([this] {
      while (!is_ending_) {
        pollfd ready{.fd = socket_, .events = POLLIN, .revents = 0};
        if (::poll(&ready, 1, 20) == 1) Take(::accept(socket_, nullptr, nullptr));
      }
    });
  }
  ~Receiver() {
    is_ending_ = true;
    thread_.join();
    ::close(socket_);
  }
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  std::vector<std::string> bodies() const {
    const std::lock_guard lock(mutex_);
    return bodies_;
  }

 private:
  void Take(int peer) {
    std::string text;
    size_t head = std::string::npos, length = 0;
    while (head == std::string::npos || text.size() < head + 4 + length) {
      char part[4096];
      const ssize_t got = ::recv(peer, part, sizeof part, 0);
      if (got <= 0) break;
      text.append(part, static_cast<size_t>(got));
      head = text.find("\r\n\r\n");
      const size_t field = text.find("Content-Length: ");
      length =
          field == std::string::npos ? 0 : std::strtoul(text.c_str() + field + 16, nullptr, 10);
    }
    {
      const std::lock_guard lock(mutex_);
      bodies_.push_back(text.substr(head + 4));
    }
    constexpr std::string_view kAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    ::send(peer, kAnswer.data(), kAnswer.size(), MSG_NOSIGNAL);
    ::close(peer);
  }

  const int socket_;
  mutable std::mutex mutex_;
  std::vector<std::string> bodies_;
  std::atomic<bool> is_ending_ = false;
  std::thread thread_;
};

// A hundred times as fast as it is: a request each 150 ms, pauses of 10 ms to 600 ms, and the
// receiver is away for 3 s.
class OutageTest : public testing::TestWithParam<bool> {
 protected:
  static constexpr size_t kRequests = 20, kRequestBytes = 3000;

  static std::string Body(size_t number) {
    std::string body = std::to_string(number);
    body.resize(kRequestBytes, ' ');
    return body;
  }

  // Those that arrive when the receiver is back. The queue holds `holds` requests.
  std::vector<std::string> ArriveAfterOutage(size_t holds) {
    const std::string path = scratch_.path() + "/receiver", directory = scratch_.path() + "/queue";
    std::filesystem::create_directory(directory);
    RequestQueue queue(GetParam() ? directory : "", holds * kRequestBytes);
    Pusher pusher(
        {.server = {.host = "", .port = "", .socket = path},
         .path = "/v1/metrics",
         .patience = std::chrono::seconds(5),
         .most_bytes = 1000},
        queue, [](const std::string&) {},
        {.first = std::chrono::milliseconds(10), .longest = std::chrono::milliseconds(600)});
    for (size_t i = 0; i < kRequests; ++i) {
      pusher.Add(Body(i));
      std::this_thread::sleep_for(std::chrono::milliseconds(150));
    }
    pusher.AddFamilies(0, waiting_);
    Receiver receiver(path);
    std::this_thread::sleep_for(std::chrono::milliseconds(900));
    pusher.Add(Body(kRequests));
    pusher.Finish();
    pusher.AddFamilies(0, ended_);
    return receiver.bodies();
  }

  static double Value(const std::vector<PlainFamily>& families, const std::string& name,
                      size_t sample = 0) {
    for (const PlainFamily& family : families)
      if (family.name == name) return family.samples.at(sample).value;
    return -1;
  }

  collector::ScratchDirectory scratch_;
  std::vector<PlainFamily> waiting_, ended_;
};

TEST_P(OutageTest, LosesNothingThatTheQueueHolds) {
  std::vector<std::string> all;
  for (size_t i = 0; i <= kRequests; ++i) all.push_back(Body(i));
  EXPECT_EQ(ArriveAfterOutage(kRequests), all);
  EXPECT_EQ(Value(waiting_, "nccl_otlp_queue_bytes"), kRequests * kRequestBytes);
  EXPECT_EQ(Value(ended_, "nccl_otlp_queue_bytes"), 0);
  EXPECT_EQ(Value(ended_, "nccl_otlp_requests_total"), kRequests + 1) << "accepted";
  EXPECT_EQ(Value(ended_, "nccl_otlp_requests_total", 2), 0) << "dropped";
  // 10, 20, 40, 80, 160 and 320 ms, and 600 ms then, of which a half may be left out.
  EXPECT_GE(Value(ended_, "nccl_otlp_failed_tries_total"), 7);
  EXPECT_LE(Value(ended_, "nccl_otlp_failed_tries_total"), 20);
}

TEST_P(OutageTest, HasTheNewestOnesWhereTheQueueHoldsLess) {
  std::vector<std::string> newest;
  for (size_t i = kRequests / 2; i <= kRequests; ++i) newest.push_back(Body(i));
  EXPECT_EQ(ArriveAfterOutage(kRequests / 2), newest);
  EXPECT_EQ(Value(waiting_, "nccl_otlp_queue_bytes"), kRequests / 2 * kRequestBytes);
  EXPECT_EQ(Value(ended_, "nccl_otlp_requests_total", 2), kRequests / 2) << "dropped";
}

INSTANTIATE_TEST_SUITE_P(InMemoryAndOnDisk, OutageTest, testing::Bool());

}  // namespace
}  // namespace nccl_exporter::exporter::otlp
