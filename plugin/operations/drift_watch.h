// SPDX-License-Identifier: Apache-2.0
// Watch for the known causes by which NCCL's counters of kernel work leave those of the device:
// from then on its kernel events carry the times of other work, for good. Calls and operations show
// them before the first wrong time stamp. Any thread. proto/README.md has the same rule.
//
// The causes are those of nccl_release.h (DriftCauses), with kernel timing only. Empty parts are
// not seen on 2.26, which does not announce the number of parts. Replays are seen from 2.28 on,
// where calls are announced. NCCL's sequence number skips collectives whose events another program
// has switched off; Sends and Receives have none. Broadcasts part the counters too from 2.29 on,
// unless NCCL_ALLGATHERV_ENABLE=0: no kernel events are asked for there.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "plugin/nccl/nccl_release.h"
#include "plugin/operations/operation.h"
#include "plugin/segment/atomics.h"
#include "proto/timing_source.h"

namespace nccl_exporter::plugin {

// Number of parts with data in a message cut into `parts` at multiples of 4 KiB; a message without
// bytes has one.
constexpr uint64_t PartsWithData(uint64_t bytes, uint64_t parts) {
  constexpr uint64_t kGranularity = 4096;
  const uint64_t share = bytes / parts + (bytes % parts != 0 ? 1 : 0);
  const uint64_t part_bytes =
      std::max(share / kGranularity + (share % kGranularity != 0 ? 1 : 0), uint64_t{1});
  const uint64_t units = bytes / kGranularity + (bytes % kGranularity != 0 ? 1 : 0);
  return std::max((units + part_bytes - 1) / part_bytes, uint64_t{1});
}

// One per communicator. A call is noted by the thread that makes it, before its operation is
// announced.
class DriftWatch {
 public:
  void Open(const DriftCauses& causes) {
    StoreRelaxed(hides_parts_, causes.hides_parts);
    StoreRelaxed(forgets_replays_, causes.forgets_replays);
    StoreRelaxed(latest_call_is_captured_, false);
    StoreRelaxed(forgets_unannounced_, causes.forgets_unannounced);
    Zero(next_sequences_);
  }

  void NoteCall(bool is_captured) { StoreRelaxed(latest_call_is_captured_, is_captured); }

  // Whether, and why, the counters drift from this operation on.
  DriftCause CauseIn(const OperationStart& start) {
    if (start.peer < 0 && LoadRelaxed(forgets_unannounced_) && SkipsSequence(start)) {
      return DriftCause::kEventsOff;
    }
    if (start.is_replay && LoadRelaxed(forgets_replays_) &&
        !LoadRelaxed(latest_call_is_captured_)) {
      return DriftCause::kReplayAfterEagerCall;
    }
    if (start.peer < 0 || !LoadRelaxed(hides_parts_)) return DriftCause::kNone;
    if (start.is_to_self) return DriftCause::kMessageToSelf;
    const bool has_empty_parts =
        start.channels > 1 && PartsWithData(start.message_bytes, start.channels) < start.channels;
    return has_empty_parts ? DriftCause::kEmptyParts : DriftCause::kNone;
  }

 private:
  bool SkipsSequence(const OperationStart& start) {
    if (start.is_copy) return false;
    std::atomic<uint64_t>& next = next_sequences_[static_cast<uint8_t>(start.function)];
    const uint64_t expected = LoadRelaxed(next);
    StoreRelaxed(next, start.sequence + 1);
    return expected != 0 && start.sequence > expected;
  }

  std::atomic<bool> hides_parts_{false};
  std::atomic<bool> forgets_replays_{false};
  std::atomic<bool> forgets_unannounced_{false};
  std::atomic<bool> latest_call_is_captured_{false};
  std::array<std::atomic<uint64_t>, kFunctionCount> next_sequences_{};  // 0: none was announced yet
};

}  // namespace nccl_exporter::plugin
