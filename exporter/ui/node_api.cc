// SPDX-License-Identifier: Apache-2.0
#include "exporter/ui/node_api.h"

#include <utility>

#include "exporter/scrape/gzip.h"
#include "exporter/scrape/negotiation.h"

namespace nccl_exporter::exporter {

NodeApi::NodeApi(SnapshotSource& snapshots, const HistoryKeeper& history, DaemonFacts facts)
    : snapshots_(snapshots),
      history_(history),
      facts_(std::move(facts)),
      bodies_([this] { return Make(); }, kApiLifetime) {}

HttpResponse NodeApi::Answer(const HttpRequest& request) {
  const bool is_compressed = AcceptsGzip(request.accept_encoding);
  HttpResponse response{.content_type = "application/json",
                        .headers = {{"Cache-Control", "no-store"}, {"Vary", "Accept-Encoding"}},
                        .body = {}};
  if (is_compressed) response.headers.emplace_back("Content-Encoding", "gzip");
  const std::shared_ptr<const Bodies> bodies = bodies_.Get();
  response.shared_body = {bodies, is_compressed ? &bodies->compressed : &bodies->plain};
  return response;
}

std::shared_ptr<const NodeApi::Bodies> NodeApi::Make() {
  const std::shared_ptr<const collector::NodeSnapshot> node = snapshots_.Take();
  const auto bodies = std::make_shared<Bodies>();
  history_.Read(
      [&](const NodeHistory& history) { bodies->plain = NodeJson(*node, history, facts_); });
  bodies->compressed = Gzip(bodies->plain);
  return bodies;
}

}  // namespace nccl_exporter::exporter
