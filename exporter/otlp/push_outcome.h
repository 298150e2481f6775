// SPDX-License-Identifier: Apache-2.0
// PushOutcome, what an answer to a request of OTLP/HTTP says of it. Pure functions of untrusted
// bytes.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "exporter/cli/client/plain_get.h"

namespace nccl_exporter::exporter::otlp {

enum class PushEnd : uint8_t { kAccepted, kTryAgain, kRefused };

struct PushOutcome {
  PushEnd end;
  std::string reason = {};       // printable; of one that was accepted whole: empty
  uint64_t rejected_points = 0;  // of one that was accepted in part
  std::optional<std::chrono::seconds> retry_after = {};
};

// Longest time that a Retry-After is followed: the queue may be full by then.
inline constexpr std::chrono::seconds kLongestRetryAfter{3600};

// 429, 502, 503, 504 and no answer ask for another try. Everything else but 2xx is final.
// `now` is in seconds since the epoch.
PushOutcome OutcomeOf(const PlainAnswer& answer, int64_t now);

}  // namespace nccl_exporter::exporter::otlp
