// SPDX-License-Identifier: Apache-2.0
// NodeJson(), the answer of /api/v1/node. Its contract is docs/api.md. Any thread may call: it
// looks at the watched directories, and depends on nothing else that changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/findings/node_judge.h"
#include "exporter/http/answer_budget.h"

namespace nccl_exporter::exporter {

// Facts about the daemon itself.
struct DaemonFacts {
  std::string node_name;
  std::string telemetry_path;
  int64_t start_realtime_ns = 0;
  std::vector<std::string> segment_directories{};  // paths and patterns, as in --segment.dir
  std::string commit{};                            // exporter/commit.h; empty: not known
  // Why the daemon is not ready, one line; empty if it is. Any thread.
  std::function<std::string()> fault = [] { return std::string(); };
  size_t node_answer_bytes = kNodeAnswerBytes;  // maximum of NodeJson()
};

// The answer of /api/v1/findings: what is wrong, without the rest. `top` and `inflight` read it.
std::string FindingsAnswer(const collector::NodeSnapshot& node, const NodeJudge& judge,
                           const DaemonFacts& facts);

// The fields of that answer, also for `top --json` and `inflight --json`, which add whose judgement
// it is: `judged`, left out where it is null. Communicators and processes beyond the limit are left
// out, and counted. Users share it. Of one user those come first that have findings or are killed
// or stopped.
std::string NodeFields(const collector::NodeSnapshot& node, const NodeHistory& history,
                       const Judgement& judgement, const DaemonFacts& facts,
                       const nlohmann::ordered_json& judged);
std::string NodeJson(const collector::NodeSnapshot& node, const NodeJudge& judge,
                     const DaemonFacts& facts);

}  // namespace nccl_exporter::exporter
