// SPDX-License-Identifier: Apache-2.0
// HangSentences, what is said of a job that waits, by the verdict on it. For any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "exporter/findings/finding.h"
#include "exporter/findings/hangs/wait_graph.h"

namespace nccl_exporter::exporter {

class HangSentences {
 public:
  // Findings are about `communicator` of `job`, in which a rank waits that lives. Both outlive this
  // object. `is_hang`: it has waited for as long as a hang, so it is not only a wait.
  HangSentences(const GraphJob& job, const GraphCommunicator& communicator,
                int64_t taken_realtime_ns, bool is_hang, Severity severity);

  // The ranks with is_culprit: at least one.
  Finding Culprits() const;
  // Those with is_different. If there are none, the ranks are in different calls, and there is no
  // majority.
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
