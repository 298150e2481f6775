// SPDX-License-Identifier: Apache-2.0
// Follows the completion rings of all segments for the ArrivalMatcher: which communicators there
// are, which of them to read, and what becomes of their counts when they are over.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "collector/arrivals/arrival_matcher.h"
#include "collector/arrivals/completion_ring.h"
#include "collector/node_snapshot.h"
#include "collector/reader/moment.h"
#include "collector/segments/segment_file.h"

namespace nccl_exporter::collector {

// A ring holds 51 ms of a communicator with 10,000 operations a second: read when it is less than
// half full.
inline constexpr std::chrono::milliseconds kRingReadInterval{20};

// A user's communicators that have begun to work ask for discovery at most so often, and a few
// times in a row: a process that claims communicators without end would make us look at all
// segments each time, every 20 ms. Others wait for the collector's next look, a second at most; a
// ring keeps what is completed meanwhile, up to its size.
inline constexpr std::chrono::milliseconds kAskInterval{250};
inline constexpr int64_t kAsksInARow = 4;

// A communicator's members are all there before any of its operations completes, for its
// initialization is collective. So a communicator is matched only once all files are known that
// were there when an operation was seen in its rings: then every rank is known.
//
// Counts stay as long as the segment is followed and the slot is not claimed again. Not
// thread-safe.
class ArrivalObserver {
 public:
  // Finds the communicators. `looks` has every segment that was there at `known_until_ns`, of
  // CLOCK_MONOTONIC.
  void Discover(const SegmentLooks& looks, const Moment& now, int64_t known_until_ns);

  // Whether Discover() shall be called before the next Read(): a communicator has begun to work,
  // and its user has not asked too often.
  bool AwaitsDiscovery(const Moment& now);

  // Reads what was completed since the last call, and matches it. Whether there is anything that
  // must be read regularly.
  bool Read(const Moment& now);

  // Puts the counts into the snapshot of the node, and what was completed since the last one.
  void AddTo(NodeSnapshot& snapshot);

 private:
  using RingKey = std::pair<FileKey, uint32_t>;  // segment and slot
  struct Followed {
    uint64_t uid = 0;
    uint64_t generation = 0;
    std::shared_ptr<const SegmentFile> file;
    CompletionRing ring{0};
    CompletionRing recent{0};                  // the ring as AddTo() has read it
    ArrivalMatcher::Member* member = nullptr;  // null: over, only the counts are left
    std::optional<ArrivalCounts> counts;       // the latest, if it was ever comparable
    bool is_over = false;  // closed, or its writer gone, when it was last looked at
    std::optional<int64_t> begun_monotonic_ns;  // when an operation was first seen in the ring
    bool is_settled = false;                    // all ranks are known
  };

  void MeetSlots(const FileKey& key, const SegmentLook& look);
  void OnFound(const RingKey& key, const SegmentLook& look);
  void MeetAgain(Followed& followed, bool is_over);
  void Follow(const RingKey& key, const SegmentLook& look);
  bool MakeRoom(uint64_t uid);
  bool GiveUpRing(uint64_t uid, bool also_the_living);
  static void UpdateCounts(Followed& followed);
  void Retire(Followed& followed);
  bool MayAsk(uint64_t uid, const Moment& now);
  void ReadRing(Followed& followed, const Moment& now);
  void AddTo(ProcessSnapshot& process);

  ArrivalMatcher matcher_;
  std::map<RingKey, Followed> rings_;
  // By user: live communicators, at the latest Discover().
  std::map<uint64_t, uint64_t> without_ring_;
  // By user: live slots without a ring, in the latest Discover().
  std::map<uint64_t, size_t> tried_;
  std::map<uint64_t, int64_t> asks_used_up_to_ns_;  // by user, see MayAsk()
  std::vector<CompletedOperation> operations_;      // kept from ring to ring
  uint64_t cpu_ns_ = 0;
};

}  // namespace nccl_exporter::collector
