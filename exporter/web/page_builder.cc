// SPDX-License-Identifier: Apache-2.0
// Rounds: one exposition of the whole or of the alert series or both, encoded in every format that
// is waited for.
#include "exporter/web/page_builder.h"

#include <utility>

#include "exporter/exposition/encoder.h"
#include "exporter/exposition/gzip.h"

namespace nccl_exporter::exporter {
const Encoder& EncoderOf(Format format) {
  static const TextEncoder text;
  static const OpenMetricsEncoder openmetrics;
  static const ProtobufEncoder protobuf;
  switch (format) {
    case Format::kProtobuf:
      return protobuf;
    case Format::kOpenMetrics:
      return openmetrics;
    case Format::kText:
      break;
  }
  return text;
}

namespace {

size_t IndexOf(const PageKind& kind) {
  const size_t body =
      static_cast<size_t>(kind.collect) * kFormatCount + static_cast<size_t>(kind.format);
  return 2 * body + static_cast<size_t>(kind.is_compressed);
}

}  // namespace

PageBuilder::PageBuilder(std::function<Exposition(Collect)> expose, AnswerBudget& budget)
    : expose_(std::move(expose)), budget_(budget), thread_([this] { Run(); }) {}

PageBuilder::~PageBuilder() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  is_wanted_.notify_one();
  thread_.join();
}

Page PageBuilder::Get(PageKind kind, Clock::time_point deadline, Refusal& refusal) {
  refusal = Refusal::kScrapeTimeout;
  const size_t index = IndexOf(kind);
  std::unique_lock lock(mutex_);
  const std::shared_ptr<Round> round = next_;
  round->wanted.set(index);
  is_wanted_.notify_one();
  if (!is_done_.wait_until(lock, deadline, [&] { return round->is_done; })) return nullptr;
  if (round->failure) std::rethrow_exception(round->failure);
  refusal = Refusal::kAnswerBytes;
  return round->pages[index];
}

void PageBuilder::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    is_wanted_.wait(lock, [this] { return is_stopping_ || next_->wanted.any(); });
    if (is_stopping_) return;
    const std::shared_ptr<Round> round = std::exchange(next_, std::make_shared<Round>());
    const std::bitset<kKinds> wanted = round->wanted;
    lock.unlock();
    Build(*round, wanted);
    lock.lock();
    round->is_done = true;
    is_done_.notify_all();
  }
}

void PageBuilder::Build(Round& round, std::bitset<kKinds> wanted) {
  const auto wants = [&](Collect collect) {
    constexpr size_t kKindsOfOne = kKinds / kCollectCount;
    for (size_t i = 0; i < kKindsOfOne; ++i) {
      if (wanted.test(static_cast<size_t>(collect) * kKindsOfOne + i)) return true;
    }
    return false;
  };
  try {
    if (wants(Collect::kAlerts)) Encode(expose_(Collect::kAlerts), Collect::kAlerts, wanted, round);
    if (!wants(Collect::kWhole) && !wants(Collect::kDetail)) return;
    Exposition exposition = expose_(Collect::kWhole);
    Encode(exposition, Collect::kWhole, wanted, round);
    KeepOnly(Collect::kDetail, exposition);
    Encode(exposition, Collect::kDetail, wanted, round);
  } catch (...) {
    round.failure = std::current_exception();
  }
}

void PageBuilder::Encode(const Exposition& exposition, Collect collect, std::bitset<kKinds> wanted,
                         Round& round) {
  for (const Format format : {Format::kText, Format::kOpenMetrics, Format::kProtobuf}) {
    const size_t plain = IndexOf({.format = format, .is_compressed = false, .collect = collect});
    const size_t compressed =
        IndexOf({.format = format, .is_compressed = true, .collect = collect});
    if (!wanted.test(plain) && !wanted.test(compressed)) continue;
    body_.clear();
    EncoderOf(format).Encode(exposition, body_);
    if (wanted.test(compressed)) round.pages[compressed] = budget_.Keep(Gzip(body_));
    if (wanted.test(plain)) round.pages[plain] = budget_.Keep(body_);
    if (body_.capacity() > kKeptBodyBytes) std::string().swap(body_);
  }
}

}  // namespace nccl_exporter::exporter
