// SPDX-License-Identifier: Apache-2.0
// A step that is written as a list of calls, such as "alltoall@0,allreduce,broadcast": one
// communicator over all ranks, one group a call. "@0": in step 0 only.
#pragma once

#include <string>
#include <string_view>

#include "simulator/workload/layout_builder.h"

namespace nccl_exporter::sim {

// Appends communicator and groups. Returns what is wrong with the list, or nothing.
std::string WriteCallList(std::string_view list, LayoutBuilder& builder);

// The names that a list may have, for --help.
std::string CallListHelp();

}  // namespace nccl_exporter::sim
