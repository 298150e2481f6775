// SPDX-License-Identifier: Apache-2.0
// The answer, kept for a moment.
#include "exporter/ui/node_api.h"

#include <utility>

#include "exporter/scrape/gzip.h"
#include "exporter/scrape/negotiation.h"

namespace nccl_exporter {

NodeApi::NodeApi(HistoryKeeper::Snapshots snapshots, const HistoryKeeper& history, DaemonFacts facts)
    : snapshots_(std::move(snapshots)), history_(history), facts_(std::move(facts)) {}

HttpResponse NodeApi::Answer(const HttpRequest& request) {
  const bool is_compressed = AcceptsGzip(request.accept_encoding);
  HttpResponse response{.content_type = "application/json",
                        .headers = {{"Cache-Control", "no-store"}, {"Vary", "Accept-Encoding"}},
                        .body = {}};
  if (is_compressed) response.headers.emplace_back("Content-Encoding", "gzip");
  const std::lock_guard lock(mutex_);
  if (plain_ == nullptr || std::chrono::steady_clock::now() - made_ > kApiLifetime) Make();
  response.shared_body = is_compressed ? compressed_ : plain_;
  return response;
}

void NodeApi::Make() {
  const std::shared_ptr<const NodeSnapshot> node = snapshots_();
  history_.Read([&](const NodeHistory& history) {
    plain_ = std::make_shared<const std::string>(NodeJson(*node, history, facts_));
  });
  compressed_ = std::make_shared<const std::string>(Gzip(*plain_));
  made_ = std::chrono::steady_clock::now();
}

}  // namespace nccl_exporter
