// SPDX-License-Identifier: Apache-2.0
// HangSentences, the findings about a job that waits, in sentences. For any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "exporter/findings/finding.h"
#include "exporter/findings/hangs/wait_graph.h"

namespace nccl_exporter::exporter {

class HangSentences {
 public:
  // Findings are about `communicator` of `job`, in which a living rank waits. Both outlive this
  // object. `is_hang`: it has waited for as long as a hang.
  HangSentences(const GraphJob& job, const GraphCommunicator& communicator,
                int64_t taken_realtime_ns, bool is_hang, Severity severity);

  // Names the ranks with is_culprit: at least one.
  Finding Culprits() const;
  // Names the ranks with is_different. If there are none, no call has a majority.
  Finding OtherCall() const;
  Finding NobodyBehind() const;
  // It is not known on this node for whom the ranks wait.
  Finding Elsewhere() const;

 private:
  FoundRank Found(const GraphRank& rank, Standing standing) const;
  Finding Begin(FindingKind kind, std::string runbook) const;
  std::string Opening() const;
  std::string Waiting() const;
  std::string Operation() const;
  void AddCulprits(bool GraphRank::*flag, Finding& finding) const;
  void AddCall(const GraphRank& rank, FoundRank& found) const;
  std::string Named(const Finding& finding) const;
  std::string ClauseOf(const FoundRank& culprit) const;
  std::string CallsText(const Finding& finding) const;
  std::string OthersText() const;

  const GraphJob& job_;
  const GraphCommunicator& here_;
  const int64_t taken_realtime_ns_;
  const bool is_hang_;
  const Severity severity_;
  const bool are_global_;              // the numbers of ranks
  size_t waiting_ = 0;                 // ranks
  const GraphRank* oldest_ = nullptr;  // of them, the one that has waited longest
};

}  // namespace nccl_exporter::exporter
