// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/node_troubles.h"

namespace nccl_exporter::exporter {

std::vector<Finding> KilledProcesses(const collector::NodeSnapshot&) { return {}; }

}  // namespace nccl_exporter::exporter
