// SPDX-License-Identifier: Apache-2.0
// Findings as lines of text for `inflight` and /debug/inflight, one per sentence. Pure functions,
// for any thread.
#pragma once

#include <string>

#include "exporter/findings/node_judge.h"

namespace nccl_exporter::exporter {

// One line for the worst finding or for none, then its details and the further findings. Ends in a
// line feed.
std::string FindingsText(const Judgement& judgement);

// "Nothing found in the last 5 min: 12 communicators, 1204 operations compared."
std::string NothingFoundText(const Judgement& judgement);

}  // namespace nccl_exporter::exporter
