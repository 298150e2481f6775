// SPDX-License-Identifier: Apache-2.0
#include "exporter/otlp/pusher.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <random>
#include <utility>

#include "exporter/exposition/protobuf_fields.h"
#include "exporter/text/number_in.h"
#include "exporter/text/utf8.h"

namespace nccl_exporter::exporter::otlp {
namespace {

constexpr size_t kReasonLimitBytes = 512;
constexpr std::array kAgain{429, 502, 503, 504};

// Requests are compressed or not by the settings of the process that made them.
constexpr std::string_view kGzipMagic = "\x1f\x8b";

std::string Printable(std::string_view text) {
  const size_t bytes = text.find_last_not_of(" \r\n") + 1;
  return ValidUtf8(text.substr(0, bytes), kReasonLimitBytes, "?");
}

// A number of seconds, or a date of HTTP.
std::optional<std::chrono::seconds> RetryAfterIn(const std::string& field, int64_t now) {
  int64_t seconds = 0;
  std::tm date{};
  if (const auto number = NumberIn<uint32_t>(field)) {
    seconds = *number;
  } else if (::strptime(field.c_str(), "%a, %d %b %Y %H:%M:%S", &date) != nullptr) {
    seconds = ::timegm(&date) - now;
  } else {
    return std::nullopt;
  }
  return std::clamp(std::chrono::seconds(seconds), std::chrono::seconds(0), kLongestRetryAfter);
}

// ExportMetricsServiceResponse: its partial_success has the number of rejected points and why.
PushOutcome Accepted(std::string_view body) {
  const wire::Pair response = wire::PairIn(body), partial = wire::PairIn(response.first_bytes);
  if (!response.is_right || !partial.is_right) return {.end = PushEnd::kAccepted};
  return {.end = PushEnd::kAccepted,
          .reason = Printable(partial.second_bytes),
          .rejected_points = partial.first};
}

}  // namespace

PushOutcome OutcomeOf(const PlainAnswer& answer, int64_t now) {
  // The status says enough, also where the answer is not whole.
  if (answer.status == 0)
    return {.end = PushEnd::kTryAgain,
            .reason = answer.fault.empty() ? "the answer is no HTTP" : Printable(answer.fault)};
  if (answer.status / 100 == 2) return Accepted(answer.body);
  // The body may be google.rpc.Status, whose message is its second field, or a text.
  const wire::Pair status = wire::PairIn(answer.body);
  const std::string_view text = status.is_right ? status.second_bytes : answer.body;
  const bool is_again = std::ranges::count(kAgain, answer.status) != 0;
  return {.end = is_again ? PushEnd::kTryAgain : PushEnd::kRefused,
          .reason = Printable(
              fmt::format("status {}{}{}", answer.status, text.empty() ? "" : ": ", text)),
          .retry_after = RetryAfterIn(FieldOf(answer.head, "retry-after"), now)};
}

Pusher::Pusher(PlainRequest endpoint, RequestQueue& queue, Say say, Pauses pauses)
    : endpoint_(std::move(endpoint)), say_(std::move(say)), pauses_(pauses), queue_(queue) {
  thread_ = std::thread([this] { Run(); });
}

Pusher::~Pusher() { Finish(); }

void Pusher::Add(std::string body) {
  const std::lock_guard lock(mutex_);
  if (const std::string fault = queue_.Add(std::move(body)); !fault.empty()) SayOnce(fault);
  changed_.notify_all();
}

void Pusher::Finish() {
  {
    const std::lock_guard lock(mutex_);
    end_by_ = std::chrono::steady_clock::now() + endpoint_.patience;
    is_ending_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void Pusher::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return is_ending_ || queue_.count() != 0; });
    const bool is_last_try = is_ending_;
    const std::optional<RequestQueue::Request> request = queue_.Oldest();
    if (is_last_try && (!request || std::chrono::steady_clock::now() > end_by_)) return;
    if (!request) continue;
    lock.unlock();
    const PushOutcome outcome = Push(request->body);
    lock.lock();
    Count(outcome);
    if (outcome.end != PushEnd::kTryAgain) {
      queue_.Remove(request->number);
    } else if (is_last_try) {
      return;
    } else {
      changed_.wait_for(lock, NextPause(outcome), [this] { return is_ending_; });
    }
  }
}

PushOutcome Pusher::Push(const std::string& body) const {
  PlainRequest request = endpoint_;
  request.fields += "Content-Type: application/x-protobuf\r\n";
  if (body.starts_with(kGzipMagic)) request.fields += "Content-Encoding: gzip\r\n";
  return OutcomeOf(PlainPost(std::move(request), body), std::time(nullptr));
}

void Pusher::Count(const PushOutcome& outcome) {
  const std::string where = endpoint_.server.Text() + endpoint_.path;
  rejected_points_ += outcome.rejected_points;
  switch (outcome.end) {
    case PushEnd::kAccepted:
      ++accepted_;
      pause_ = pauses_.first;
      if (outcome.rejected_points != 0 || !outcome.reason.empty())
        return SayOnce(fmt::format("{} accepts a request in part: {}", where, outcome.reason));
      if (!said_.empty())
        say_(fmt::format("{} accepts requests again; {} wait", where, queue_.count() - 1));
      said_.clear();
      return;
    case PushEnd::kTryAgain:
      ++tried_again_;
      return SayOnce(fmt::format("cannot push to {}: {}; trying again", where, outcome.reason));
    case PushEnd::kRefused:
      ++refused_;
      return SayOnce(
          fmt::format("{} refuses a request, which is dropped: {}", where, outcome.reason));
  }
}

void Pusher::SayOnce(const std::string& text) {
  if (text != std::exchange(said_, text)) say_(text);
}

std::chrono::milliseconds Pusher::NextPause(const PushOutcome& outcome) {
  static std::minstd_rand random{std::random_device{}()};
  const auto pause = std::exchange(pause_, std::min(2 * pause_, pauses_.longest));
  const std::chrono::milliseconds shortened(
      std::uniform_int_distribution(pause.count() / 2, pause.count())(random));
  return std::max<std::chrono::milliseconds>(shortened,
                                             outcome.retry_after.value_or(std::chrono::seconds(0)));
}

void Pusher::AddFamilies(int64_t start_ns, std::vector<PlainFamily>& families) {
  const std::lock_guard lock(mutex_);
  const auto sample = [start_ns](uint64_t value, Labels labels = {}) {
    return PlainSample{.labels = std::move(labels),
                       .value = static_cast<double>(value),
                       .created_realtime_ns = start_ns};
  };
  families.push_back({.name = "nccl_otlp_requests_total",
                      .help = "Requests of nccl-exporter otlp, by what became of them.",
                      .samples = {sample(accepted_, {{"result", "accepted"}}),
                                  sample(refused_, {{"result", "refused"}}),
                                  sample(queue_.dropped(), {{"result", "dropped"}})}});
  families.push_back({.name = "nccl_otlp_failed_tries_total",
                      .help = "Requests that were tried again.",
                      .samples = {sample(tried_again_)}});
  families.push_back({.name = "nccl_otlp_rejected_points_total",
                      .help = "Data points that the receiver has rejected of accepted requests.",
                      .samples = {sample(rejected_points_)}});
  families.push_back({.name = "nccl_otlp_queue_bytes",
                      .help = "Requests that wait.",
                      .type = MetricType::kGauge,
                      .samples = {sample(queue_.bytes())}});
}

}  // namespace nccl_exporter::exporter::otlp
