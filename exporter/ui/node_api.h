// SPDX-License-Identifier: Apache-2.0
// Answers to /api/v1/node, /api/v1/findings and /debug/inflight: one of each is made per
// kApiLifetime, however many look at them.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "exporter/findings/in_flight_table.h"
#include "exporter/findings/node_watch.h"
#include "exporter/http/http_server.h"
#include "exporter/node/shared_read.h"
#include "exporter/node/snapshot_source.h"
#include "exporter/scrape/gzip.h"
#include "exporter/scrape/negotiation.h"
#include "exporter/ui/node_json.h"

namespace nccl_exporter::exporter {

// How old an answer may be.
inline constexpr std::chrono::milliseconds kApiLifetime{500};

class NodeApi {
 public:
  // `snapshots` and `watch` outlive this object.
  NodeApi(SnapshotSource& snapshots, const NodeWatch& watch, DaemonFacts facts);

  // Any thread; those that come while an answer is made wait for it.
  HttpResponse Answer(const HttpRequest& request) { return Answer(request, kJson, nodes_); }
  HttpResponse AnswerFindings(const HttpRequest& request) {
    return Answer(request, kJson, findings_);
  }
  // Who is in what, with the findings on top.
  HttpResponse AnswerInFlight(const HttpRequest& request) {
    return Answer(request, HttpResponse().content_type, in_flight_);
  }

 private:
  struct Bodies {
    std::string plain;
    std::string compressed;
  };
  using Write = std::string(const collector::NodeSnapshot&, const NodeJudge&, const DaemonFacts&);
  std::shared_ptr<const Bodies> Make(Write* write);
  static HttpResponse Answer(const HttpRequest& request, std::string_view content_type,
                             SharedRead<Bodies>& answers);
  static std::string InFlight(const collector::NodeSnapshot& node, const NodeJudge& judge,
                              const DaemonFacts& /*facts*/) {
    return InFlightText(node, judge.Judge(node));
  }

  static constexpr std::string_view kJson = "application/json";

  SnapshotSource& snapshots_;
  const NodeWatch& watch_;
  const DaemonFacts facts_;
  SharedRead<Bodies> nodes_;
  SharedRead<Bodies> findings_;
  SharedRead<Bodies> in_flight_;
};

inline NodeApi::NodeApi(SnapshotSource& snapshots, const NodeWatch& watch, DaemonFacts facts)
    : snapshots_(snapshots),
      watch_(watch),
      facts_(std::move(facts)),
      nodes_([this] { return Make(NodeJson); }, kApiLifetime),
      findings_([this] { return Make(FindingsAnswer); }, kApiLifetime),
      in_flight_([this] { return Make(InFlight); }, kApiLifetime) {}

inline HttpResponse NodeApi::Answer(const HttpRequest& request, std::string_view content_type,
                                    SharedRead<Bodies>& answers) {
  const bool is_compressed = AcceptsGzip(request.accept_encoding);
  HttpResponse response{.content_type = std::string(content_type),
                        .headers = {{"Cache-Control", "no-store"}, {"Vary", "Accept-Encoding"}},
                        .body = {}};
  if (is_compressed) response.headers.emplace_back("Content-Encoding", "gzip");
  const std::shared_ptr<const Bodies> bodies = answers.Get();
  response.shared_body = {bodies, is_compressed ? &bodies->compressed : &bodies->plain};
  return response;
}

inline std::shared_ptr<const NodeApi::Bodies> NodeApi::Make(Write* write) {
  const std::shared_ptr<const collector::NodeSnapshot> node = snapshots_.Take();
  const auto bodies = std::make_shared<Bodies>();
  watch_.Read([&](const NodeJudge& judge) { bodies->plain = write(*node, judge, facts_); });
  bodies->compressed = Gzip(bodies->plain);
  return bodies;
}

}  // namespace nccl_exporter::exporter
