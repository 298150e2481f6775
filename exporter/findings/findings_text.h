// SPDX-License-Identifier: Apache-2.0
// Findings as lines of text: on top of `inflight` and /debug/inflight. Pure functions, for any
// thread. Lines are as long as their sentences: a terminal or a browser wraps them.
#pragma once

#include <string>

#include "exporter/findings/node_judge.h"

namespace nccl_exporter::exporter {

// One line for the worst finding or for none, then its details and the further findings. Ends in a
// line feed.
std::string FindingsText(const Judgement& judgement);

// "Nothing found in the last 5 min: 12 communicators, 1204 operations compared."; says what is
// still to be learnt.
std::string NothingFoundText(const Judgement& judgement);

}  // namespace nccl_exporter::exporter
