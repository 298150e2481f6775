// SPDX-License-Identifier: Apache-2.0
// Judges from its parts whether an operation is in flight, see proto/README.md, rule 4: pure functions, so that the
// rule is a table.
#pragma once

#include <cstdint>

#include "proto/data_quality.h"

namespace nccl_exporter {

// An operation whose parts are all done counts as complete when nothing has been heard of it for this long: the number
// of its parts may have been an upper bound, or not announced at all.
inline constexpr uint64_t kQuietNs = 1'000'000'000;

// The parts (kernel channels or proxy operations) of an operation that the plugin has not seen to complete.
struct OperationParts {
  uint32_t announced = 0;
  uint32_t done = 0;
  uint64_t quiet_ns = 0;    // since the latest event of a part; 0 if there was none
  bool is_untimed = false;  // called outside of a sampling window: only proxy operations can tell of its completion
};

enum class OperationProgress : uint8_t {
  kUnobservable,  // nothing can be said: its completion would not be seen either
  kInFlight,
  kComplete,
};

OperationProgress JudgeOperation(TimingSource source, const OperationParts& parts);

// Whether operations that do not cross the network, too, are seen to complete: if not, a communicator of which no
// completion and no part was ever seen says nothing about completion. `any_seen`: a completion or a part was seen.
bool CompletionIsKnown(TimingSource source, bool any_seen);

// Whether the passing of time alone will make this operation complete.
constexpr bool CompletesByQuiet(const OperationParts& parts) {
  return parts.done >= 1 && parts.done == parts.announced;
}

}  // namespace nccl_exporter
