// SPDX-License-Identifier: Apache-2.0
// DumpText(), a segment as text for people: `nccl-exporter dump SEGMENT`. A pure function, for any
// thread.
#pragma once

#include <string>

#include "collector/node_snapshot.h"

namespace nccl_exporter::exporter {

// Ends in a line feed. Text of other processes is quoted and escaped, so that it is safe on a
// terminal.
std::string DumpText(const collector::ProcessSnapshot& process);

}  // namespace nccl_exporter::exporter
