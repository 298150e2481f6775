// SPDX-License-Identifier: Apache-2.0
// A hand-made snapshot for tests.
#pragma once

#include <memory>

#include "collector/node_snapshot.h"
#include "exporter/commands/synthetic_node.h"

namespace nccl_exporter {

// A node on which everything occurs that an exposition can show: see the golden files in testdata.
std::shared_ptr<const NodeSnapshot> ExampleSnapshot();

}  // namespace nccl_exporter
