// SPDX-License-Identifier: Apache-2.0
// Summary of a trace: what the time went to, who waited and for whom, how closely the clocks are
// known, and what is missing. Pure functions, for any thread.
#pragma once

#include <string>

#include "exporter/trace/clock_alignment.h"

namespace nccl_exporter::exporter {

// Plain text, ends in a line feed. Texts of other processes are escaped.
std::string TraceSummary(const ClockAlignment& alignment);

// Two lines for each node: what has to be added to its CLOCK_REALTIME for that of the first node,
// and how closely that is known; and how closely its kernels are known against those of the first
// node.
std::string AlignmentText(const ClockAlignment& alignment);

// A line for each thing that the trace lacks; empty if it lacks nothing.
std::string MissingText(const std::vector<collector::NodeTrace>& nodes);

}  // namespace nccl_exporter::exporter
