// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/hangs.h"

namespace nccl_exporter::exporter {

void Hangs::Record(const collector::NodeSnapshot&) {}

std::vector<Finding> Hangs::Findings(const collector::NodeSnapshot&) const { return {}; }

}  // namespace nccl_exporter::exporter
