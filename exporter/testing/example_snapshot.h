// SPDX-License-Identifier: Apache-2.0
// ExampleSnapshot(), a hand-written snapshot for tests.
#pragma once

#include <memory>

#include "collector/node_snapshot.h"
#include "exporter/cli/synthetic_node.h"

namespace nccl_exporter::exporter {

// A node with every metric and every state that an exposition can show: see
// exporter/series/testdata.
std::shared_ptr<const collector::NodeSnapshot> ExampleSnapshot();

}  // namespace nccl_exporter::exporter
