// SPDX-License-Identifier: Apache-2.0
// The player of the scripts, and what must hold whatever they say.
#include "collector/arrivals/arrival_fuzz_input.h"

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "collector/arrivals/arrival_matcher.h"
#include "collector/arrivals/completion_ring.h"
#include "collector/reader/segment_source.h"
#include "collector/testing/memory_source.h"
#include "proto/shm_layout.h"

namespace nccl_exporter::collector::fuzz {
namespace {

constexpr size_t kRanks = 3;
constexpr uint64_t kPeriodNs = 1'000'000;  // from one operation of a rank to the next
constexpr uint64_t kJitterStepNs = 2'000;  // a start may be late by 255 of these
// Longer than that, so that no operation ends before all have begun.
constexpr uint64_t kDurationNs = 600'000;
constexpr uint64_t kMonotonicNs = 5'000'000'000'000;
constexpr uint64_t kGpuNs = 1'700'000'000'000'000'000;
constexpr uint64_t kMostLost = 1 << 20;

void Require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "arrival_fuzz: broken promise: %s\n", promise);
  std::abort();
}

// Rest of the script; zeros behind its end.
class Script {
 public:
  explicit Script(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  bool is_over() const { return bytes_.empty(); }
  uint64_t Number(size_t length) {
    uint64_t number = 0;
    for (size_t i = 0; i < length; ++i) {
      number = number << 8 | (bytes_.empty() ? 0 : bytes_.front());
      bytes_ = bytes_.subspan(bytes_.empty() ? 0 : 1);
    }
    return number;
  }

 private:
  std::span<const uint8_t> bytes_;
};

// A rank's slot, as its process writes it.
class Slot : public SegmentSource {
 public:
  uint64_t Size() const override { return bytes_.size(); }
  uint64_t OwnerUid() const override { return 0; }
  // A scheduled change happens in the midst of the copy, as when the writer goes on in the
  // meantime.
  ssize_t Read(uint64_t offset, std::span<std::byte> into) const override {
    const auto change = std::exchange(change_, nullptr);
    const size_t before = change ? change_place_ % (into.size() + 1) : into.size();
    const ssize_t length = MemorySource(bytes_, 0).Read(offset, into.first(before));
    if (!change) return length;
    change();
    return length + MemorySource(bytes_, 0).Read(offset + before, into.subspan(before));
  }
  // `place`: how many bytes of the next copy come before it, modulo its length.
  void AtNextCopy(size_t place, std::function<void()> change) {
    change_place_ = place;
    change_ = std::move(change);
  }

  void PutWord(size_t entry, size_t word, uint64_t value) {
    std::memcpy(&bytes_[kRing + entry * sizeof(layout::CompletionEntry) + word * sizeof(value)],
                &value, sizeof(value));
  }
  void Put(const CompletedOperation& operation, uint64_t ticket) {
    using Entry = layout::CompletionEntry;
    const size_t entry = (ticket - 1) % layout::kCompletionEntries;
    const auto put = [&](size_t offset, uint64_t value) {
      PutWord(entry, offset / sizeof(value), value);
    };
    put(offsetof(Entry, ticket), 0);
    put(offsetof(Entry, function_and_sequence), operation.function_and_sequence);
    put(offsetof(Entry, call_ns), operation.call_ns);
    put(offsetof(Entry, start_ns), operation.start_ns);
    put(offsetof(Entry, stop_ns), operation.stop_ns);
    put(offsetof(Entry, delivered_ns), operation.delivered_ns);
    put(offsetof(Entry, members), operation.members);
    put(offsetof(Entry, ticket), ticket);
  }

 private:
  static constexpr size_t kRing = offsetof(layout::CommunicatorSlot, completions);

  std::vector<std::byte> bytes_ = std::vector<std::byte>(sizeof(layout::CommunicatorSlot));
  size_t change_place_ = 0;
  mutable std::function<void()> change_;
};

struct Rank {
  Slot slot;
  CompletionRing ring{0};
  ArrivalMatcher::Member* member = nullptr;
  bool is_honest = true;
  uint64_t written = 0;  // newest ticket
  uint64_t seen = 0;     // newest that was reported
  uint64_t taken = 0;    // operations, since it was added to the matcher
};

class Player {
 public:
  PlayedArrivals Play(Script script) {
    for (size_t rank = 0; rank < kRanks; ++rank) Enter(rank);
    while (!script.is_over()) Step(script);
    for (size_t rank = 0; rank < kRanks; ++rank) Read(rank);
    for (const Rank& rank : ranks_) played_.compared += CheckedCounts(rank).compared;
    return played_;
  }

 private:
  void Step(Script& script) {
    const uint64_t command = script.Number(1);
    const size_t number = command / 8 % kRanks;
    Rank& rank = ranks_[number];
    switch (command % 8) {
      case 0:
      case 1: {
        const uint64_t count = script.Number(1) + 1, lateness = script.Number(1);
        if (command % 8 == 0) return Complete(number, count, lateness);
        return rank.slot.AtNextCopy(script.Number(2), [this, number, count, lateness] {
          Complete(number, count, lateness);
        });
      }
      case 2:
      case 3:
        return Read(number);
      case 4: {
        rank.is_honest = all_are_honest_ = false;
        const size_t entry = script.Number(2) % layout::kCompletionEntries;
        const size_t word = script.Number(1) % (sizeof(layout::CompletionEntry) / sizeof(uint64_t));
        const uint64_t value = script.Number(8);
        const auto poke = [&slot = rank.slot, entry, word, value] {
          slot.PutWord(entry, word, value);
        };
        return command & 0x80 ? rank.slot.AtNextCopy(script.Number(2), poke) : poke();
      }
      case 5:
        now_ns_ += script.Number(1) * 10'000'000;
        return matcher_.Expire(now_ns_);
      case 6:
        matcher_.Remove(rank.member);
        return Enter(number);
      default:
        return matcher_.SetHasKernelTimes(rank.member, script.Number(1) % 4 != 0);
    }
  }

  void Enter(size_t number) {
    Rank& rank = ranks_[number];
    rank.taken = 0;
    rank.member = matcher_.Add(
        {.communicator = {.id = 7, .ranks = kRanks, .uid = 1, .job = "", .name_space = ""},
         .rank = number,
         .has_kernel_times = true,
         .call_is_bound = true});
  }

  static CompletedOperation Operation(size_t number, uint64_t ticket, uint64_t lateness) {
    const uint64_t at_ns = ticket * kPeriodNs + lateness * kJitterStepNs;
    const uint64_t end_ns = ticket * kPeriodNs + kDurationNs;
    return {.function_and_sequence = static_cast<uint64_t>(Function::kAllReduce) << 56 | ticket,
            .call_ns = kMonotonicNs + at_ns - 5'000,
            .start_ns = kGpuNs + number * kPeriodNs + at_ns,
            .stop_ns = kGpuNs + number * kPeriodNs + end_ns,
            .delivered_ns = kMonotonicNs + end_ns + 5'000,
            .members = 1};
  }
  void Complete(size_t number, uint64_t count, uint64_t lateness) {
    Rank& rank = ranks_[number];
    for (; count != 0; --count) {
      ++rank.written;
      rank.slot.Put(Operation(number, rank.written, lateness), rank.written);
    }
  }

  void Read(size_t number) {
    Rank& rank = ranks_[number];
    operations_.clear();
    const uint64_t written_before = rank.written;
    const uint64_t lost = rank.ring.Read(rank.slot, operations_);
    Require(operations_.size() <= layout::kCompletionEntries,
            "no more is read than the ring holds");
    Require(lost <= kMostLost, "what is lost is bounded");
    if (rank.is_honest) CheckHonest(rank, number, written_before, lost);
    for (const CompletedOperation& operation : operations_)
      matcher_.Take(rank.member, operation, now_ns_);
    matcher_.CountLost(rank.member, lost);
    rank.taken += operations_.size();
    played_.operations += operations_.size();
    CheckedCounts(rank);
  }

  // Every operation is reported once, in order and as it was written, or counted as lost, or left
  // for the next look. What was there before the first look is not ours to lose.
  void CheckHonest(Rank& rank, size_t number, uint64_t written_before, uint64_t lost) {
    uint64_t last = rank.seen;
    for (const CompletedOperation& told : operations_) {
      const uint64_t ticket = told.function_and_sequence & 0xffffffff;
      Require(ticket > last && ticket <= rank.written,
              "operations are told in order, and none twice");
      last = ticket;
      const CompletedOperation earliest = Operation(number, ticket, 0);
      Require(told.stop_ns == earliest.stop_ns && told.delivered_ns == earliest.delivered_ns,
              "they are told whole");
      Require(told.start_ns - earliest.start_ns == told.call_ns - earliest.call_ns,
              "no two of them are mixed");
    }
    if (rank.seen != 0)
      Require(rank.seen + lost + operations_.size() == last, "what is not told is counted");
    if (rank.written == written_before)
      Require(last == rank.written, "all is told when nobody writes");
    rank.seen = last;
  }

  const ArrivalCounts& CheckedCounts(const Rank& rank) const {
    const ArrivalCounts& counts = rank.member->counts;
    Require(counts.compared <= rank.taken, "no more is compared than was taken");
    Require(counts.last <= counts.compared, "who was last was compared");
    if (all_are_honest_) {
      Require(counts.lateness_ns <= counts.compared * 255 * kJitterStepNs,
              "nobody is later than he was");
    }
    return counts;
  }

  std::array<Rank, kRanks> ranks_;
  ArrivalMatcher matcher_;
  std::vector<CompletedOperation> operations_;
  uint64_t now_ns_ = kMonotonicNs;
  bool all_are_honest_ = true;
  PlayedArrivals played_;
};

}  // namespace

PlayedArrivals PlayAndCheck(std::span<const uint8_t> script) {
  return Player().Play(Script(script));
}

}  // namespace nccl_exporter::collector::fuzz
