// SPDX-License-Identifier: Apache-2.0
// Makes the pages that scrapes are answered with, on one thread of its own: however many scrape at
// a time, the node gives one CPU, one snapshot and one copy of each page.
#pragma once

#include <chrono>
#include <compare>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "exporter/exposition/exposition.h"
#include "exporter/exposition/negotiation.h"
#include "exporter/http/answer_budget.h"
#include "exporter/http/refusal.h"
#include "exporter/series/collect.h"

namespace nccl_exporter::exporter {

struct PageKind {
  Format format = Format::kText;
  bool is_compressed = false;
  Collect collect = Collect::kWhole;

  auto operator<=>(const PageKind&) const = default;
};
using Page = std::shared_ptr<const std::string>;

// A page at the limit of series, with labels of the usual length.
inline constexpr size_t kKeptBodyBytes = size_t{8} << 20;

class PageBuilder {
 public:
  using Clock = std::chrono::steady_clock;

  // `expose` is called on the builder's thread, for the whole or for the alert series. Its
  // expositions are those of ExpositionOfCatalogue(). Pages are kept in `budget`, which outlives
  // this object.
  PageBuilder(std::function<Exposition(Collect)> expose, AnswerBudget& budget);
  ~PageBuilder();
  PageBuilder(const PageBuilder&) = delete;
  PageBuilder& operator=(const PageBuilder&) = delete;

  // A page of an exposition that was begun after the call: requests that come while a round is
  // under way share the next one. Null where the deadline passes first (the round goes on without
  // its caller), or where there is no room for the page; then `refusal` says which. Throws what
  // `expose` threw. Any thread.
  Page Get(PageKind kind, Clock::time_point deadline, Refusal& refusal);

 private:
  // Those who wait for a round own it together, so that its pages are gone with the last answer.
  struct Round {
    std::map<PageKind, Page> pages;  // that are wanted
    bool is_done = false;
    std::exception_ptr failure;
  };

  void Run();
  void Build(Round& round);
  void Encode(const Exposition& exposition, Collect collect, Round& round);

  const std::function<Exposition(Collect)> expose_;
  AnswerBudget& budget_;
  // For the builder's thread: it keeps its memory from one round to the next, up to kKeptBodyBytes.
  std::string body_;
  // Size of the last page that was too large to be kept; 0: none was. The next one has that room at
  // once: a page that grows by doubling touches twice its bytes.
  size_t large_body_bytes_ = 0;
  std::mutex mutex_;  // guards what follows, but for the pages of the round that is under way
  std::condition_variable is_wanted_;
  std::condition_variable is_done_;
  std::shared_ptr<Round> next_ = std::make_shared<Round>();
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace nccl_exporter::exporter
