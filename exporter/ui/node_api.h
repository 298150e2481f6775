// SPDX-License-Identifier: Apache-2.0
// Answers to /api/v1/node: one is made per kApiLifetime, however many look at the page.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "exporter/http/http_server.h"
#include "exporter/findings/node_watch.h"
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
  // `snapshots` and `history` outlive this object.
  NodeApi(SnapshotSource& snapshots, const NodeWatch& history, DaemonFacts facts);

  // Any thread; those that come while an answer is made wait for it.
  HttpResponse Answer(const HttpRequest& request);

 private:
  struct Bodies {
    std::string plain;
    std::string compressed;
  };
  std::shared_ptr<const Bodies> Make();

  SnapshotSource& snapshots_;
  const NodeWatch& history_;
  const DaemonFacts facts_;
  SharedRead<Bodies> bodies_;
};

inline NodeApi::NodeApi(SnapshotSource& snapshots, const NodeWatch& history, DaemonFacts facts)
    : snapshots_(snapshots),
      history_(history),
      facts_(std::move(facts)),
      bodies_([this] { return Make(); }, kApiLifetime) {}

inline HttpResponse NodeApi::Answer(const HttpRequest& request) {
  const bool is_compressed = AcceptsGzip(request.accept_encoding);
  HttpResponse response{.content_type = "application/json",
                        .headers = {{"Cache-Control", "no-store"}, {"Vary", "Accept-Encoding"}},
                        .body = {}};
  if (is_compressed) response.headers.emplace_back("Content-Encoding", "gzip");
  const std::shared_ptr<const Bodies> bodies = bodies_.Get();
  response.shared_body = {bodies, is_compressed ? &bodies->compressed : &bodies->plain};
  return response;
}

inline std::shared_ptr<const NodeApi::Bodies> NodeApi::Make() {
  const std::shared_ptr<const collector::NodeSnapshot> node = snapshots_.Take();
  const auto bodies = std::make_shared<Bodies>();
  history_.Read(
      [&](const NodeJudge& judge) { bodies->plain = NodeJson(*node, judge, facts_); });
  bodies->compressed = Gzip(bodies->plain);
  return bodies;
}

}  // namespace nccl_exporter::exporter
