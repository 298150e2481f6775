// SPDX-License-Identifier: Apache-2.0
// Findings as JSON: for /api/v1/node, /api/v1/findings and `--json`, and their reader. Its contract
// is docs/api.md: keys are added and never renamed. Pure functions, for any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "exporter/findings/node_judge.h"
#include "exporter/ledger/watched_directories.h"

namespace nccl_exporter::exporter {

// Rounded to four significant digits; null for NaN and infinity, which JSON lacks.
nlohmann::ordered_json RoundedJson(double value);
// Seconds since the epoch, to the millisecond; 0 becomes null.
nlohmann::ordered_json TimeJson(int64_t realtime_ns);

// Version of the contract, docs/findings.schema.json: the minor grows with each name or kind that
// is added.
inline constexpr std::string_view kFindingsSchema = "1.1";

// An array of findings, the worst first.
nlohmann::ordered_json FindingsJson(const Judgement& judgement);
// Extent of the judgement: history, communicators, and what was left out.
nlohmann::ordered_json LookedAtJson(const Judgement& judgement);

// A node of 16 GPUs with the most findings of a user has an answer of 0.6 MB. More is refused, so
// the lists of an answer have no limits of their own.
inline constexpr size_t kMostAnswerBytes = 2 << 20;

struct ReceivedFindings {
  Judgement judgement;
  int64_t start_realtime_ns = 0;  // of the daemon
  WatchedDirectories watches;
};

// Reads the answer of /api/v1/findings, which may come from anybody: without a daemon every local
// user can listen at its port. So all texts come out as text that a terminal only shows.
//
// Nothing if `answer` is not as docs/api.md has it; then `fault` says what is wrong. What a newer
// daemon may add is allowed: further fields are ignored. A finding of a kind that is not known here
// has FindingKind::kCount, and ranks whose standing is not known are left out of its lists: its
// headline names them.
std::optional<ReceivedFindings> FindingsFromJson(std::string_view answer, std::string& fault);

}  // namespace nccl_exporter::exporter
