// SPDX-License-Identifier: Apache-2.0
// OperationRecorder, which reads the completion rings of all segments into a NodeTrace: once, or
// again and again in a window of time. It takes an operation when its ticket is due, so none comes
// twice, and counts those that were overwritten between two reads.
//
// An operation belongs to the window if it was called before the end and delivered, or in flight,
// after the begin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "collector/arrivals/completion_ring.h"
#include "collector/node_snapshot.h"
#include "collector/reader/moment.h"
#include "collector/segments/segment_file.h"
#include "collector/trace/node_trace.h"

namespace nccl_exporter::collector {

// Not thread-safe.
class OperationRecorder {
 public:
  // The window begins at `begin_ns`, of CLOCK_MONOTONIC. `is_polled`: reads follow until its end.
  OperationRecorder(int64_t begin_ns, bool is_polled,
                    size_t most_operations = kMostTracedOperations);

  // Follows the communicators of `snapshot`, which was taken at `now`; `looks` are of the same
  // moment. The last snapshot has what is in flight at the end of the window.
  void Follow(const NodeSnapshot& snapshot, const SegmentLooks& looks, const Moment& now);

  // Reads what was completed since the last call. One system call for each ring without news.
  void Read();

  // Counts the operations that communicators have completed and timed until now. After the last
  // Read(): an operation that is complete and has no times yet, because they are to be confirmed,
  // counts as one without.
  void Count(const NodeSnapshot& snapshot);

  // The trace, whose window ends with the last Follow(). Call Read() and Count() in between.
  NodeTrace Finish();

 private:
  struct Ring {
    std::shared_ptr<const SegmentFile> file;
    int64_t source_offset_ns = 0;  // distance by which the timing source's clock is ahead of ours
    uint64_t generation = 0;
    CompletionRing ring{0};
    bool is_new = false;     // all that was completed was completed in the window
    bool has_begun = false;  // something was read
    bool is_over = false;    // its slot has another communicator
    uint64_t untimed_before = 0, untimed = 0;
    CommunicatorSnapshot latest;
    TracedCommunicator traced;
  };
  using RingKey = std::pair<uint32_t, uint64_t>;  // slot and generation
  struct Process {
    ProcessSnapshot latest;  // without communicators
    std::array<uint64_t, kLossCount> losses_before{};
    size_t header_bytes = 0, slot_bytes = 0;
    std::map<RingKey, Ring> rings;
  };

  void FollowCommunicator(Process& process, const SegmentLook& look,
                          const CommunicatorSnapshot& communicator);
  void Read(Ring& ring, size_t& room);
  void NoteFirst(Ring& ring, uint64_t first_ticket, int64_t first_delivered_ns);
  void Describe(const Ring& ring, TracedCommunicator& traced) const;
  void AddInFlight(const Ring& ring, TracedCommunicator& traced) const;

  const int64_t begin_ns_;
  const bool is_polled_;
  const size_t most_operations_;
  bool is_first_ = true;  // look
  Moment end_;
  std::map<FileKey, Process> processes_;
  std::map<uint64_t, size_t> room_of_;          // operations that a user may still add
  std::vector<CompletedOperation> operations_;  // kept from ring to ring
};

}  // namespace nccl_exporter::collector
