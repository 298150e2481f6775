// SPDX-License-Identifier: Apache-2.0
// Discovery of slots, and the reading of their rings.
#include "collector/arrivals/arrival_observer.h"

#include <algorithm>
#include <ctime>
#include <iterator>
#include <memory>

#include "collector/reader/slot_directory.h"
#include "proto/shm_layout.h"

namespace nccl_exporter::collector {
namespace {

constexpr uint64_t kFirstApiWithCalls = 5;  // before, a call is announced after the launch

// `key`: of the communicator, as far as the process has it.
LocalRank RankOf(const SlotHead& head, CommunicatorKey key) {
  key.id = head.communicator_id;
  key.ranks = head.ranks;
  return {.communicator = std::move(key),
          .rank = head.rank,
          .has_kernel_times = head.has_kernel_times,
          .call_is_bound = head.api_version >= kFirstApiWithCalls};
}

// The collectives among them.
std::vector<RecentOperation> CollectivesOf(const std::vector<CompletedOperation>& operations) {
  std::vector<RecentOperation> collectives;
  for (const CompletedOperation& operation : operations) {
    if (TrafficOf(operation.function()) != Traffic::kCollective) continue;
    collectives.push_back({.function = operation.function(),
                           .size_class = static_cast<uint8_t>(SizeClassOf(operation.bytes)),
                           .sequence = operation.sequence(),
                           .launch_ns = operation.DurationNs(),
                           .members = operation.members});
  }
  return collectives;
}

uint64_t ThreadCpuNs() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

// Adds the CPU time of the thread during its life.
class CpuTime {
 public:
  explicit CpuTime(uint64_t& sum_ns) : sum_ns_(sum_ns), since_ns_(ThreadCpuNs()) {}
  ~CpuTime() { sum_ns_ += ThreadCpuNs() - since_ns_; }
  CpuTime(const CpuTime&) = delete;
  CpuTime& operator=(const CpuTime&) = delete;

 private:
  uint64_t& sum_ns_;
  const uint64_t since_ns_;
};

}  // namespace

// A ring is settled when all segments that existed at its beginning are known. Before, a partner
// may be missing from its group only because nobody has looked yet.
void ArrivalObserver::Discover(const SegmentLooks& looks, const Moment& now,
                               int64_t known_until_ns) {
  const CpuTime cpu_time(cpu_ns_);
  for (auto ring = rings_.begin(); ring != rings_.end();) {
    const auto look = looks.find(ring->first.first);
    const bool is_listed = look != looks.end();
    if (!is_listed) Retire(ring->second);
    if (is_listed && !look->second.is_alive) MeetAgain(ring->second, true);
    ring = is_listed ? std::next(ring) : rings_.erase(ring);
  }
  tried_.clear();
  without_ring_.clear();
  for (const auto& [key, look] : looks) {
    if (look.is_alive) MeetSlots(key, look);
  }
  for (auto& [key, followed] : rings_) {
    const std::optional<int64_t> begun_ns = followed.begun_monotonic_ns;
    followed.is_settled = followed.is_settled || (begun_ns && *begun_ns <= known_until_ns);
  }
  std::erase_if(asks_used_up_to_ns_,
                [&](const auto& user) { return user.second <= now.monotonic_ns; });
  matcher_.Expire(static_cast<uint64_t>(now.monotonic_ns));
}

// In the overflow slot communicators cannot be distinguished. Of each user as many slots are tried
// as there are rings: one without a ring is read at each look.
void ArrivalObserver::MeetSlots(const FileKey& key, const SegmentLook& look) {
  if (!look.slots.process) return;
  const uint64_t uid = look.slots.process->uid;
  for (uint32_t slot = 0; slot < look.slots.heads.size(); ++slot) {
    if (!rings_.contains({key, slot})) {
      if (look.slots.heads[slot].state() != layout::SlotState::kLive) continue;
      if (++tried_[uid] > kMaxRings) {
        ++without_ring_[uid];
        continue;
      }
    }
    OnFound({key, slot}, look);
  }
}

// A slot of another generation holds another communicator: the former one's ring ends here.
void ArrivalObserver::OnFound(const RingKey& key, const SegmentLook& look) {
  const SlotHead& head = look.slots.heads[key.second];
  const auto found = rings_.find(key);
  if (found != rings_.end() && found->second.generation == head.generation()) {
    MeetAgain(found->second, head.state() == layout::SlotState::kClosed);
    if (found->second.member != nullptr)
      matcher_.SetHasKernelTimes(found->second.member, head.has_kernel_times);
    return;
  }
  if (found != rings_.end()) {
    Retire(found->second);
    rings_.erase(found);
  }
  if (head.state() == layout::SlotState::kLive && head.has_identity) Follow(key, look);
}

// A communicator that is over is read until the next look: what was completed last may not have
// been read yet, here or on another rank.
void ArrivalObserver::MeetAgain(Followed& followed, bool is_over) {
  if (followed.is_over) Retire(followed);
  followed.is_over = is_over;
}

// The head is read twice again: a slot that changes hands in between is left for the next look.
void ArrivalObserver::Follow(const RingKey& key, const SegmentLook& look) {
  const uint64_t state_word = look.slots.heads[key.second].state_word;
  const uint64_t offset = look.slots.OffsetOf(key.second);
  std::optional<SegmentFault> fault;
  const auto head = ReadSlotHead(*look.file, offset, fault);
  const auto after = ReadSlotHead(*look.file, offset, fault);
  if (!head || !after || head->state_word != state_word || after->state_word != state_word) return;
  const ProcessSnapshot& process = *look.slots.process;
  if (!MakeRoom(process.uid)) {
    ++without_ring_[process.uid];
    return;
  }
  Followed& followed = rings_[key];
  followed.uid = process.uid;
  followed.generation = layout::GenerationOf(state_word);
  followed.file = look.file;
  followed.ring = followed.recent = CompletionRing(offset, look.clock_offset_ns);
  followed.member = matcher_.Add(RankOf(*head, CommunicatorKeyOf(process, {}, process.GivenJob())));
}

// Whether there is room for one more ring of the user. Where there is none, the user who has the
// most gives one up, with its counts, to one who has fewer; else he gives up one that is over, of
// which only the counts are left.
bool ArrivalObserver::MakeRoom(uint64_t uid) {
  std::map<uint64_t, size_t> rings_of;
  for (const auto& [key, followed] : rings_) ++rings_of[followed.uid];
  const size_t own = rings_of[uid];
  if (own < kMaxRingsPerUser) {
    if (rings_.size() < kMaxRings) return true;
    const auto most =
        std::ranges::max_element(rings_of, {}, [](const auto& user) { return user.second; });
    if (most->second > own + 1) return GiveUpRing(most->first, true);
  }
  return GiveUpRing(uid, false);
}

// Those that are over come first.
bool ArrivalObserver::GiveUpRing(uint64_t uid, bool also_the_living) {
  auto given = std::ranges::find_if(rings_, [&](const auto& ring) {
    return ring.second.uid == uid && ring.second.member == nullptr;
  });
  if (given == rings_.end() && also_the_living) {
    given = std::ranges::find_if(rings_, [&](const auto& ring) { return ring.second.uid == uid; });
  }
  if (given == rings_.end()) return false;
  Retire(given->second);
  rings_.erase(given);
  return true;
}

void ArrivalObserver::UpdateCounts(Followed& followed) {
  if (followed.member != nullptr && followed.counts) followed.counts = followed.member->counts;
}

// The counts stay with the ring, for as long as its segment is served.
void ArrivalObserver::Retire(Followed& followed) {
  if (followed.member == nullptr) return;
  UpdateCounts(followed);
  matcher_.Remove(followed.member);
  followed.member = nullptr;
}

// Whether a ring has begun of which some partner may not be known yet.
bool ArrivalObserver::AwaitsDiscovery(const Moment& now) {
  bool awaits = false;
  for (auto& [key, followed] : rings_) {
    if (followed.member == nullptr || followed.is_settled || !followed.member->IsComparable())
      continue;
    if (!followed.begun_monotonic_ns && followed.ring.HasBegun(*followed.file)) {
      followed.begun_monotonic_ns = now.monotonic_ns;
    }
    if (followed.begun_monotonic_ns) awaits = MayAsk(followed.uid, now) || awaits;
  }
  return awaits;
}

// Each ask pushes the user's time on by an interval; it may be ahead of the present by some of
// them.
bool ArrivalObserver::MayAsk(uint64_t uid, const Moment& now) {
  constexpr int64_t kIntervalNs = std::chrono::nanoseconds(kAskInterval).count();
  int64_t& used_up_to_ns = asks_used_up_to_ns_.try_emplace(uid, now.monotonic_ns).first->second;
  used_up_to_ns = std::max(used_up_to_ns, now.monotonic_ns);
  if (used_up_to_ns - now.monotonic_ns > (kAsksInARow - 1) * kIntervalNs) return false;
  used_up_to_ns += kIntervalNs;
  return true;
}

bool ArrivalObserver::Read(const Moment& now) {
  const CpuTime cpu_time(cpu_ns_);
  bool is_regular = false;
  for (auto& [key, followed] : rings_) {
    if (followed.member == nullptr || !followed.member->IsComparable()) continue;
    is_regular = true;
    if (!followed.counts) followed.counts.emplace();
    if (followed.is_settled) ReadRing(followed, now);
  }
  return is_regular;
}

void ArrivalObserver::ReadRing(Followed& followed, const Moment& now) {
  operations_.clear();
  const std::optional<uint64_t> lost =
      followed.ring.ReadOf(followed.generation, *followed.file, operations_);
  if (!lost) return;
  matcher_.CountLost(followed.member, *lost);
  for (const CompletedOperation& operation : operations_)
    matcher_.Take(followed.member, operation, static_cast<uint64_t>(now.monotonic_ns));
}

void ArrivalObserver::AddTo(ProcessSnapshot& process) {
  for (CommunicatorSnapshot& communicator : process.communicators) {
    const auto found = rings_.find({process.file, communicator.slot});
    if (found == rings_.end() || found->second.generation != communicator.generation) continue;
    Followed& followed = found->second;
    if (communicator.nodes != 1) {
      operations_.clear();
      if (!followed.recent.ReadOf(followed.generation, *followed.file, operations_))
        operations_.clear();
      communicator.recent = CollectivesOf(operations_);
    }
    UpdateCounts(followed);
    communicator.arrivals = followed.counts;
  }
}

void ArrivalObserver::AddTo(NodeSnapshot& snapshot) {
  for (ProcessSnapshot& process : snapshot.processes) AddTo(process);
  snapshot.uncompared_operations = matcher_.uncompared();
  for (const auto& [uid, count] : without_ring_) {
    std::vector<UncomparedCommunicators>& users = snapshot.uncompared_communicators;
    if (users.size() < kMaxTroubledUsers) {
      users.push_back({.uid = uid, .count = count});
    } else if (users.size() == kMaxTroubledUsers) {
      users.push_back({.uid = {}, .count = count});
    } else {
      users.back().count += count;
    }
  }
  snapshot.arrival_matching_ns = cpu_ns_;
}

}  // namespace nccl_exporter::collector
