// SPDX-License-Identifier: Apache-2.0
#include "exporter/otlp/pusher.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <optional>
#include <random>
#include <utility>

namespace nccl_exporter::exporter::otlp {
namespace {

// Requests are compressed or not by the settings of the process that made them.
constexpr std::string_view kGzipMagic = "\x1f\x8b";

}  // namespace

Pusher::Pusher(PlainRequest endpoint, RequestQueue& queue, Say say)
    : endpoint_(std::move(endpoint)), say_(std::move(say)), queue_(queue) {
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
      pause_ = kFirstPause;
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
  const auto pause = std::exchange(pause_, std::min(2 * pause_, kLongestPause));
  const std::chrono::milliseconds shortened(
      std::uniform_int_distribution(pause.count() / 2, pause.count())(random));
  return std::max<std::chrono::milliseconds>(shortened,
                                             outcome.retry_after.value_or(std::chrono::seconds(0)));
}

Exposition Pusher::Families(int64_t start_ns) {
  const std::lock_guard lock(mutex_);
  Exposition exposition;
  exposition.created_realtime_ns = start_ns;
  const auto add = [&](const char* name, const char* help, MetricType type,
                       std::initializer_list<std::pair<const char*, uint64_t>> values) {
    Family& family = exposition.families.emplace_back(
        Family{.name = name, .help = help, .unit = "", .type = type, .scale = {}, .series = {}});
    for (const auto& [result, value] : values)
      family.series.push_back({.variable_labels = *result == '\0'
                                                      ? kNoLabels
                                                      : exposition.Add(Labels{{"result", result}}),
                               .value = static_cast<double>(value),
                               .counts = {}});
  };
  add("nccl_otlp_requests_total", "Requests of nccl-exporter otlp, by what became of them.",
      MetricType::kCounter,
      {{"accepted", accepted_}, {"refused", refused_}, {"dropped", queue_.dropped()}});
  add("nccl_otlp_failed_tries_total", "Requests that were tried again.", MetricType::kCounter,
      {{"", tried_again_}});
  add("nccl_otlp_rejected_points_total",
      "Data points that the receiver has rejected of accepted requests.", MetricType::kCounter,
      {{"", rejected_points_}});
  add("nccl_otlp_queue_bytes", "Requests that wait.", MetricType::kGauge, {{"", queue_.bytes()}});
  return exposition;
}

}  // namespace nccl_exporter::exporter::otlp
