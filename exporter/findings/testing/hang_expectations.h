// SPDX-License-Identifier: Apache-2.0
// Findings of hangs in hand-made nodes, and what tests compare of them.
#pragma once

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "exporter/findings/finding.h"
#include "exporter/findings/hangs.h"
#include "exporter/findings/testing/hand_made_node.h"

namespace nccl_exporter::exporter {

// Findings without a Record().
inline std::vector<Finding> Fresh(const HandMadeNode& job) {
  return Hangs(Thresholds()).Findings(job.node);
}

// Global ranks of the culprits of all findings.
inline std::vector<std::string> Culprits(const std::vector<Finding>& findings) {
  std::vector<std::string> ranks;
  for (const Finding& finding : findings) {
    for (const FoundRank& culprit : finding.culprits) ranks.push_back(culprit.global_rank);
  }
  return ranks;
}

inline auto IsKind(FindingKind kind) { return testing::Field(&Finding::kind, kind); }

inline std::string Evidence(const Finding& finding, const std::string& name) {
  for (const auto& [key, value] : finding.evidence) {
    if (key == name) return value;
  }
  return "none";
}

}  // namespace nccl_exporter::exporter
