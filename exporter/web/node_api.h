// SPDX-License-Identifier: Apache-2.0
// Answers to /api/v1/node, /api/v1/findings and /debug/inflight: one of each is made per
// kApiLifetime, however many look at them.
#pragma once

#include <malloc.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "exporter/exposition/gzip.h"
#include "exporter/exposition/negotiation.h"
#include "exporter/findings/in_flight_table.h"
#include "exporter/findings/node_watch.h"
#include "exporter/http/answer_budget.h"
#include "exporter/http/http_server.h"
#include "exporter/ledger/book_source.h"
#include "exporter/ledger/shared_read.h"
#include "exporter/web/node_json.h"

namespace nccl_exporter::exporter {

// Greatest age of an answer.
inline constexpr std::chrono::milliseconds kApiLifetime{500};

class NodeApi {
 public:
  // `books`, `watch` and `budget` outlive this object.
  NodeApi(BookSource& books, const NodeWatch& watch, DaemonFacts facts, AnswerBudget& budget);

  // Any thread; those that come while an answer is made wait for it. Status 503 if there is no room
  // for it.
  HttpResponse Answer(const HttpRequest& request) { return Answer(request, kJson, nodes_); }
  HttpResponse AnswerFindings(const HttpRequest& request) {
    return Answer(request, kJson, findings_);
  }
  // Findings, and the operation that each rank is in.
  HttpResponse AnswerInFlight(const HttpRequest& request) {
    return Answer(request, HttpResponse().content_type, in_flight_);
  }

  // Lets go of answers that are too old for another request; false if there are none. Any thread.
  bool GiveWay() {
    bool any = false;
    for (SharedRead<Bodies>* const answers : {&nodes_, &findings_, &in_flight_})
      any |= answers->Forget();
    return any;
  }

 private:
  // Null where there was no room for one.
  struct Bodies {
    AnswerBudget::Body plain;
    AnswerBudget::Body compressed;
  };
  using Write = std::string(const collector::NodeSnapshot&, const NodeJudge&, const DaemonFacts&);
  std::shared_ptr<const Bodies> Make(Write* write);
  static HttpResponse Answer(const HttpRequest& request, std::string_view content_type,
                             SharedRead<Bodies>& answers);
  static std::string InFlight(const collector::NodeSnapshot& node, const NodeJudge& judge,
                              const DaemonFacts& /*facts*/) {
    return InFlightText(node, judge.Judge(node));
  }

  static HttpResponse NoRoom() {
    return {.status = 503,
            .headers = {{"Retry-After", "1"}},
            .body = "No memory for this answer while slow clients take theirs\n"};
  }

  static constexpr std::string_view kJson = "application/json";

  BookSource& books_;
  const NodeWatch& watch_;
  const DaemonFacts facts_;
  AnswerBudget& budget_;
  SharedRead<Bodies> nodes_;
  SharedRead<Bodies> findings_;
  SharedRead<Bodies> in_flight_;
};

inline NodeApi::NodeApi(BookSource& books, const NodeWatch& watch, DaemonFacts facts,
                        AnswerBudget& budget)
    : books_(books),
      watch_(watch),
      facts_(std::move(facts)),
      budget_(budget),
      nodes_([this] { return Make(NodeJson); }, kApiLifetime),
      findings_([this] { return Make(FindingsAnswer); }, kApiLifetime),
      in_flight_([this] { return Make(InFlight); }, kApiLifetime) {}

inline HttpResponse NodeApi::Answer(const HttpRequest& request, std::string_view content_type,
                                    SharedRead<Bodies>& answers) {
  const bool is_compressed = AcceptsGzip(request.accept_encoding);
  const std::shared_ptr<const Bodies> bodies = answers.Get();
  const AnswerBudget::Body& body = is_compressed ? bodies->compressed : bodies->plain;
  if (body == nullptr) return NoRoom();
  HttpResponse response{.content_type = std::string(content_type),
                        .headers = {{"Cache-Control", "no-store"}, {"Vary", "Accept-Encoding"}},
                        .body = {}};
  if (is_compressed) response.headers.emplace_back("Content-Encoding", "gzip");
  response.shared_body = body;
  return response;
}

inline std::shared_ptr<const NodeApi::Bodies> NodeApi::Make(Write* write) {
  const auto bodies = std::make_shared<Bodies>();
  std::string text;
  {
    const std::shared_ptr<const collector::NodeSnapshot> node = books_.Take()->node;
    watch_.Read([&](const NodeJudge& judge) { text = write(*node, judge, facts_); });
  }
  // Memory that a large answer took to write stays in the process, as holes between younger
  // allocations, unless it is given back.
  constexpr size_t kLargeBytes = size_t{1} << 20;
  if (text.size() >= kLargeBytes) malloc_trim(0);
  bodies->compressed = budget_.Keep(Gzip(text));
  bodies->plain = budget_.Keep(std::move(text));
  return bodies;
}

}  // namespace nccl_exporter::exporter
