// SPDX-License-Identifier: Apache-2.0
// FindingsFromJson(), the reader of the answer of /api/v1/findings (docs/api.md). Pure, for any
// thread.
//
// The answer may come from anybody: without a daemon every local user can listen at its port. So
// all texts come out as text that a terminal only shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "exporter/findings/node_judge.h"
#include "exporter/ledger/watched_directories.h"

namespace nccl_exporter::exporter {

// A node of 16 GPUs with the most findings of a user has an answer of 0.6 MB. More is refused, so
// the lists of an answer have no limits of their own.
inline constexpr size_t kMostAnswerBytes = 2 << 20;

struct ReceivedFindings {
  Judgement judgement;
  int64_t start_realtime_ns = 0;  // of the daemon
  WatchedDirectories watches;
};

// Nothing if `answer` is not as docs/api.md has it; then `fault` says what is wrong. What a newer
// daemon may add is allowed: further fields are ignored. A finding of a kind that is not known here
// has FindingKind::kCount, and ranks whose standing is not known are left out of its lists: its
// headline names them.
std::optional<ReceivedFindings> FindingsFromJson(std::string_view answer, std::string& fault);

}  // namespace nccl_exporter::exporter
