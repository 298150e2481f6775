// SPDX-License-Identifier: Apache-2.0
// Findings as JSON: for /api/v1/node and `--json`. Its contract is docs/api.md.
#pragma once

#include <nlohmann/json.hpp>

#include "exporter/findings/node_judge.h"

namespace nccl_exporter::exporter {

// An array of findings, the worst first.
nlohmann::ordered_json FindingsJson(const Judgement& judgement);
// What was looked at.
nlohmann::ordered_json LookedAtJson(const Judgement& judgement);

}  // namespace nccl_exporter::exporter
