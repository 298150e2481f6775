// SPDX-License-Identifier: Apache-2.0
// Findings as JSON: for /api/v1/node and `--json`. Its contract is docs/api.md: keys are added and
// never renamed. Pure functions, for any thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "exporter/findings/node_judge.h"

namespace nccl_exporter::exporter {

// Rounded to four significant digits; null for NaN and infinity, which JSON lacks.
nlohmann::ordered_json RoundedJson(double value);
// Seconds since the epoch, to the millisecond; 0 becomes null.
nlohmann::ordered_json TimeJson(int64_t realtime_ns);

// An array of findings, the worst first.
nlohmann::ordered_json FindingsJson(const Judgement& judgement);
// Extent of the judgement: history, communicators, and what was left out.
nlohmann::ordered_json LookedAtJson(const Judgement& judgement);

}  // namespace nccl_exporter::exporter
