// SPDX-License-Identifier: Apache-2.0
// Answers /api/v1/node: made at most once in kApiLifetime, however many look at the page.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "exporter/http/http_server.h"
#include "exporter/node/history_keeper.h"
#include "exporter/ui/node_json.h"

namespace nccl_exporter {

// How old an answer may be.
inline constexpr std::chrono::milliseconds kApiLifetime{500};

class NodeApi {
 public:
  // `history` outlives this object.
  NodeApi(HistoryKeeper::Snapshots snapshots, const HistoryKeeper& history, DaemonFacts facts);

  // Any thread; those that come while an answer is made wait for it.
  HttpResponse Answer(const HttpRequest& request);

 private:
  void Make();

  const HistoryKeeper::Snapshots snapshots_;
  const HistoryKeeper& history_;
  const DaemonFacts facts_;
  std::mutex mutex_;  // guards what follows
  std::chrono::steady_clock::time_point made_;
  std::shared_ptr<const std::string> plain_;
  std::shared_ptr<const std::string> compressed_;
};

}  // namespace nccl_exporter
