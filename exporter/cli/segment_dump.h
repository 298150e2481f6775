// SPDX-License-Identifier: Apache-2.0
// DumpText(), a segment as text for people: `nccl-exporter dump SEGMENT`. A pure function, for any
// thread.
#pragma once

#include <string>

#include "collector/node_snapshot.h"

namespace nccl_exporter::exporter {

// Ends in a line feed. Text of other processes is quoted and escaped, so that it is safe on a
// terminal. Times are UTC, durations are seconds, and sizes are bytes. Histograms have a line for
// each bucket with counts, "(above, up to]" in the exposed unit; not cumulative. Functions that
// were never called, and size classes without operations, have no line. The format is for people
// and may change with any release: scripts take `inflight --json` or the metrics.
std::string DumpText(const collector::ProcessSnapshot& process);

}  // namespace nccl_exporter::exporter
