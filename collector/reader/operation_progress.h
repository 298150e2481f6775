// SPDX-License-Identifier: Apache-2.0
// OperationProgress, judged from the parts of an operation by rule 4 of proto/README.md. Pure
// functions, for any thread.
#pragma once

#include <cstdint>

#include "proto/timing_source.h"

namespace nccl_exporter::collector {

// An operation whose parts are all done counts as complete if no event of it came for this long.
// Before, more parts may follow: the number of parts may have been an upper bound, or not announced
// at all.
inline constexpr uint64_t kQuietNs = 1'000'000'000;

// The parts (kernel channels or proxy operations) of an operation that the plugin has not seen to
// complete.
struct OperationParts {
  uint32_t announced = 0;
  uint32_t done = 0;
  uint64_t quiet_ns = 0;  // since the latest event of a part; 0 if there was none
  // Not timed: only proxy operations report its completion.
  bool is_untimed = false;
};

enum class OperationProgress : uint8_t {
  kUnobservable,  // unknown: its completion would not be seen either
  kInFlight,
  kComplete,
};

// Whether this operation will complete by the passing of time alone.
constexpr bool CompletesByQuiet(const OperationParts& parts) {
  return parts.done >= 1 && parts.done == parts.announced;
}

constexpr OperationProgress JudgeOperation(TimingSource source, const OperationParts& parts) {
  if (source == TimingSource::kNone) return OperationProgress::kUnobservable;
  const bool needs_proxies = source == TimingSource::kProxy || parts.is_untimed;
  if (needs_proxies && parts.announced == 0) return OperationProgress::kUnobservable;
  if (CompletesByQuiet(parts) && parts.quiet_ns > kQuietNs) return OperationProgress::kComplete;
  return OperationProgress::kInFlight;
}

// Whether operations that do not cross the network are seen to complete, too. If not, and no
// part of an operation of a communicator was ever seen (`any_seen`), its completions are unknown.
constexpr bool CompletionIsKnown(TimingSource source, bool any_seen) {
  return source == TimingSource::kKernel || source == TimingSource::kKernelCpu ||
         (source == TimingSource::kProxy && any_seen);
}

}  // namespace nccl_exporter::collector
