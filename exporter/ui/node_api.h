// SPDX-License-Identifier: Apache-2.0
// Answers to /api/v1/node: one is made per kApiLifetime, however many look at the page.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "exporter/http/http_server.h"
#include "exporter/node/history_keeper.h"
#include "exporter/node/shared_read.h"
#include "exporter/node/snapshot_source.h"
#include "exporter/ui/node_json.h"

namespace nccl_exporter::exporter {

// How old an answer may be.
inline constexpr std::chrono::milliseconds kApiLifetime{500};

class NodeApi {
 public:
  // `snapshots` and `history` outlive this object.
  NodeApi(SnapshotSource& snapshots, const HistoryKeeper& history, DaemonFacts facts);

  // Any thread; those that come while an answer is made wait for it.
  HttpResponse Answer(const HttpRequest& request);

 private:
  struct Bodies {
    std::string plain;
    std::string compressed;
  };
  std::shared_ptr<const Bodies> Make();

  SnapshotSource& snapshots_;
  const HistoryKeeper& history_;
  const DaemonFacts facts_;
  SharedRead<Bodies> bodies_;
};

}  // namespace nccl_exporter::exporter
