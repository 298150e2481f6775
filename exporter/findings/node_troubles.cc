// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/node_troubles.h"

namespace nccl_exporter::exporter {

std::vector<Finding> UnusableSegments(const collector::NodeSnapshot&) { return {}; }
std::vector<Finding> UnfollowedOperations(const collector::NodeSnapshot&, const NodeHistory&) {
  return {};
}
std::vector<Finding> DegradedBandwidth(const collector::NodeSnapshot&, const NodeHistory&,
                                       const JudgementTimes&) {
  return {};
}

}  // namespace nccl_exporter::exporter
