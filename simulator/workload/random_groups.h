// SPDX-License-Identifier: Apache-2.0
// Groups of calls that a seed chooses among everything that NCCL can be called for.
#pragma once

#include <cstdint>
#include <vector>

#include "simulator/workload/layout_builder.h"

namespace nccl_exporter::sim {

// Communicators of one kind, of which every rank is in exactly one.
using CommunicatorFamily = std::vector<int>;

// World, halves and pairs across the halves.
std::vector<CommunicatorFamily> AddRandomFamilies(LayoutBuilder& builder);

// One seed always gives one group.
Group RandomGroup(const LayoutBuilder& builder, const std::vector<CommunicatorFamily>& families,
                  uint64_t seed);

}  // namespace nccl_exporter::sim
