// SPDX-License-Identifier: Apache-2.0
// TracePage, the answer to /debug/trace?last=30s: what the rings of this node hold, as a Chrome
// trace. Any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <mutex>

#include "collector/trace/node_trace.h"
#include "exporter/http/answer_budget.h"
#include "exporter/http/http_server.h"

namespace nccl_exporter::exporter {

// Operations of one answer: 8 ranks of 12 communicators with full rings. Each takes about 1.5 KB
// of memory while the answer is made. TracedCommunicator::beyond_limit counts the rest.
inline constexpr size_t kMostOperationsOfPage = 50'000;

class TracePage {
 public:
  // The operations of the last so much time, at most kMostOperationsOfPage.
  using Record = std::function<collector::NodeTrace(std::chrono::nanoseconds last)>;

  // `budget` outlives this object.
  TracePage(Record record, AnswerBudget& budget) : record_(std::move(record)), budget_(budget) {}

  // Status 400 for a wrong parameter, 503 while another answer is made, or without room for this
  // one.
  HttpResponse Answer(const HttpRequest& request);

 private:
  const Record record_;
  AnswerBudget& budget_;
  std::mutex is_busy_;
};

}  // namespace nccl_exporter::exporter
