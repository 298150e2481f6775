// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/late_ranks.h"

namespace nccl_exporter::exporter {

void LateRanks::Record(const collector::NodeSnapshot&, const NodeHistory&, int64_t) {}

std::vector<Finding> LateRanks::Findings(const collector::NodeSnapshot&) const { return {}; }

double LateRanks::LearningSeconds() const { return 0; }

}  // namespace nccl_exporter::exporter
