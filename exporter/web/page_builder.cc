// SPDX-License-Identifier: Apache-2.0
// Rounds: one exposition of the whole or of the alert series or both, encoded in every format that
// is waited for.
#include "exporter/web/page_builder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "exporter/exposition/encoder.h"
#include "exporter/exposition/gzip.h"

namespace nccl_exporter::exporter {

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
  std::unique_lock lock(mutex_);
  const std::shared_ptr<Round> round = next_;
  round->pages.try_emplace(kind);
  is_wanted_.notify_one();
  if (!is_done_.wait_until(lock, deadline, [&] { return round->is_done; })) return nullptr;
  if (round->failure) std::rethrow_exception(round->failure);
  refusal = Refusal::kAnswerBytes;
  return round->pages[kind];
}

void PageBuilder::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    is_wanted_.wait(lock, [this] { return is_stopping_ || !next_->pages.empty(); });
    if (is_stopping_) return;
    const std::shared_ptr<Round> round = std::exchange(next_, std::make_shared<Round>());
    lock.unlock();
    Build(*round);
    lock.lock();
    round->is_done = true;
    is_done_.notify_all();
  }
}

void PageBuilder::Build(Round& round) {
  const auto wants = [&](Collect collect) {
    return std::ranges::any_of(round.pages,
                               [&](const auto& wanted) { return wanted.first.collect == collect; });
  };
  try {
    const auto lock = budget_.WriteAlone();
    if (wants(Collect::kAlerts)) Encode(expose_(Collect::kAlerts), Collect::kAlerts, round);
    if (!wants(Collect::kWhole) && !wants(Collect::kDetail)) return;
    Exposition exposition = expose_(Collect::kWhole);
    Encode(exposition, Collect::kWhole, round);
    KeepOnly(Collect::kDetail, exposition);
    Encode(exposition, Collect::kDetail, round);
  } catch (...) {
    round.failure = std::current_exception();
  }
}

// Pages of one format follow each other, the compressed one first: the room that is left may be
// enough for it alone.
void PageBuilder::Encode(const Exposition& exposition, Collect collect, Round& round) {
  std::optional<Format> encoded;
  for (auto last = round.pages.rbegin(); last != round.pages.rend(); ++last) {
    auto& [kind, page] = *last;
    if (kind.collect != collect) continue;
    if (encoded != kind.format) {
      body_.clear();
      if (collect != Collect::kAlerts) body_.reserve(large_body_bytes_ + large_body_bytes_ / 16);
      exporter::Encode(kind.format, exposition, body_);
      encoded = kind.format;
    }
    page = budget_.Keep(kind.is_compressed ? Gzip(body_) : body_);
  }
  if (body_.capacity() <= kKeptBodyBytes) return;
  large_body_bytes_ = body_.size();
  std::string().swap(body_);
}

}  // namespace nccl_exporter::exporter
