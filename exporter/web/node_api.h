// SPDX-License-Identifier: Apache-2.0
// Answers to /api/v1/node, /api/v1/findings and /debug/inflight: one of each is made per
// kApiLifetime, however many look at them.
#pragma once

#include <malloc.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
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
#include "exporter/web/web_paths.h"

namespace nccl_exporter::exporter {

// Greatest age of an answer.
inline constexpr std::chrono::milliseconds kApiLifetime{500};

class NodeApi {
 public:
  // `books`, `watch` and `budget` outlive this object.
  NodeApi(BookSource& books, const NodeWatch& watch, DaemonFacts facts, AnswerBudget& budget,
          RefusalCounter on_refusal)
      : books_(books),
        watch_(watch),
        facts_(std::move(facts)),
        budget_(budget),
        on_refusal_(std::move(on_refusal)) {}

  // Nothing for other paths. Any thread; those that come while an answer is made wait for it.
  // Status 503 if there is no room for it.
  std::optional<HttpResponse> Answer(const HttpRequest& request);

  // Lets go of answers that are too old for another request; false if there are none. Any thread.
  bool GiveWay() {
    bool any = false;
    for (Resource& resource : resources_) any |= resource.bodies.Forget();
    return any;
  }

 private:
  // Null where there was no room for one.
  struct Bodies {
    AnswerBudget::Body plain;
    AnswerBudget::Body compressed;
  };
  struct Resource {
    std::string_view path;
    std::string_view content_type;
    SharedRead<Bodies> bodies;
  };
  using Write = std::string(const collector::NodeSnapshot&, const NodeJudge&, const DaemonFacts&);
  SharedRead<Bodies> Made(Write* write) {
    return SharedRead<Bodies>([this, write] { return Make(write); }, kApiLifetime);
  }
  std::shared_ptr<const Bodies> Make(Write* write);
  // Findings, and the operation that each rank is in.
  static std::string InFlight(const collector::NodeSnapshot& node, const NodeJudge& judge,
                              const DaemonFacts& /*facts*/) {
    return InFlightText(node, judge.Judge(node));
  }

  BookSource& books_;
  const NodeWatch& watch_;
  const DaemonFacts facts_;
  AnswerBudget& budget_;
  const RefusalCounter on_refusal_;
  std::array<Resource, 3> resources_{
      {{kNodeApiPath, "application/json", Made(NodeJson)},
       {kFindingsApiPath, "application/json", Made(FindingsAnswer)},
       {kInFlightPath, "text/plain; charset=utf-8", Made(InFlight)}}};
};

inline std::optional<HttpResponse> NodeApi::Answer(const HttpRequest& request) {
  const auto resource = std::ranges::find(resources_, request.path, &Resource::path);
  if (resource == resources_.end()) return std::nullopt;
  const bool is_compressed = AcceptsGzip(request.accept_encoding);
  const std::shared_ptr<const Bodies> bodies = resource->bodies.Get();
  HttpResponse response{.content_type = std::string(resource->content_type),
                        .headers = {{"Cache-Control", "no-store"}, {"Vary", "Accept-Encoding"}},
                        .body = {},
                        .shared_body = is_compressed ? bodies->compressed : bodies->plain};
  if (response.shared_body == nullptr) {
    on_refusal_(Refusal::kAnswerBytes);
    return BusyResponse("No memory for this answer while slow clients take theirs\n");
  }
  if (is_compressed) response.headers.emplace_back("Content-Encoding", "gzip");
  return response;
}

inline std::shared_ptr<const NodeApi::Bodies> NodeApi::Make(Write* write) {
  const auto bodies = std::make_shared<Bodies>();
  std::string text;
  {
    const auto lock = budget_.WriteAlone();
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
