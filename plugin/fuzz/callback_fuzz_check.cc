// SPDX-License-Identifier: Apache-2.0
// Properties of the segment that hold whatever NCCL announces, checked while no callback is under
// way.
//
// For each slot and function:
//   calls, and operations and bytes by size class, are those of the account (bytes modulo 2^64);
//   completed <= operations; timed operations <= completed; duration buckets add up to the timed
//   operations; bandwidth buckets do not exceed them, and are empty where bus bandwidth is
//   undefined; no count is smaller than at the last look; the ring of completions has got one entry
//   a timed operation.
//
// For each slot: no more network operations are counted than have stopped, with no more bytes than
//   their steps had; one that was played whole counts, or raises a loss.
//
// For each slot: nothing is shown in flight once it is closed; what is shown stands at its place.
//
// Conservation. At any moment of quiet, an operation that was counted is in exactly one state:
//   completed, shown in flight, never followed by its nature (overflow slot), not followed because
//   there was no room (one in_flight_full or concurrent_start), given up by finalize (one
//   incomplete_at_finalize), or in flight without any part when its communicator was finalized: by
//   copy engine, or, where proxy operations are the source of timing, possibly without crossing the
//   network, so that it is neither complete nor a loss ("unseen").
// An `abandoned` operation is completed, untimed: it is not another state. Hence, summed over all
// communicators that have or had a slot of their own, with the losses of the process:
//
//   operations = completed + shown + full + incomplete_at_finalize + unseen
//
// where full is at most the sum of these two, since those count as completed once a later operation
// is, and unseen never exceeds the entries that showed no part right before finalize; without proxy
// timing, those of them by copy engine.
#include <cinttypes>

#include "plugin/fuzz/callback_fuzz_clock.h"
#include "plugin/fuzz/callback_fuzz_session.h"

namespace nccl_exporter::plugin::fuzz {
namespace {

uint64_t Load(const layout::AtomicU64& word) { return word.load(std::memory_order_relaxed); }

template <size_t kCount>
uint64_t Sum(const layout::AtomicU64 (&words)[kCount]) {
  uint64_t sum = 0;
  for (const layout::AtomicU64& word : words) sum += Load(word);
  return sum;
}

struct Totals {
  uint64_t operations = 0;
  uint64_t completed = 0;
  uint64_t timed = 0;
};

void CheckAnnounced(const char* where, size_t function, const layout::FunctionBlock& block,
                    const Account::OfFunction& account) {
  const auto compare = [&](const char* what, size_t size_class, uint64_t counted,
                           uint64_t announced) {
    if (counted == announced) return;
    Fail("%s, %s, size class %zu: %s are %" PRIu64 ", announced were %" PRIu64, where,
         kFunctions[function].name.data(), size_class, what, counted, announced);
  };
  compare("calls", 0, Load(block.calls), account.calls.load());
  for (size_t i = 0; i < kSizeClassCount; ++i) {
    compare("operations", i, Load(block.started.operations[i]), account.operations[i].load());
    compare("bytes", i, Load(block.started.bytes[i]), account.bytes[i].load());
  }
}

Totals CheckFunction(const char* where, size_t function, const layout::FunctionBlock& block) {
  const Totals totals{Sum(block.started.operations), Load(block.completed),
                      Sum(block.timed.timed_operations)};
  const auto require = [&](bool holds, const char* what, uint64_t a, uint64_t b) {
    if (!holds)
      Fail("%s, %s: %s: %" PRIu64 ", %" PRIu64, where, kFunctions[function].name.data(), what, a,
           b);
  };
  const uint64_t durations = Sum(block.duration);
  const uint64_t bandwidths = Sum(block.bandwidth);
  require(totals.completed <= totals.operations, "completed > operations", totals.completed,
          totals.operations);
  require(totals.timed <= totals.completed, "timed > completed", totals.timed, totals.completed);
  require(durations == totals.timed, "duration buckets != timed", durations, totals.timed);
  require(bandwidths <= totals.timed, "bandwidth buckets > timed", bandwidths, totals.timed);
  const FunctionTraits& traits = kFunctions[function];
  const bool has_bandwidth =
      !traits.is_point_to_point && traits.bus_factor != BusFactor::kUndefined;
  require(has_bandwidth || bandwidths == 0, "bandwidth of a function that has none", bandwidths, 0);
  for (size_t i = 0; i < kSizeClassCount; ++i) {
    const uint64_t timed = Load(block.timed.timed_operations[i]);
    const uint64_t started = Load(block.started.operations[i]);
    require(timed <= started, "timed > operations of a size class", timed, started);
  }
  return totals;
}

// Times: no operation has more than the clock has moved since the session began.
void CheckNetwork(const char* where, const layout::CommunicatorSlot& slot, uint64_t most_operations,
                  uint64_t most_bytes) {
  uint64_t operations = 0, bytes = 0;
  for (const layout::NetworkDirectionBlock& direction : slot.network.directions) {
    operations += Load(direction.operations);
    bytes += Load(direction.bytes);
    const uint64_t most_ns = ClockNs() * Load(direction.operations);
    if (Sum(direction.wait_ns) > most_ns)
      Fail("%s: network operations waited %" PRIu64 " ns", where, Sum(direction.wait_ns));
  }
  if (operations > most_operations || bytes > most_bytes)
    Fail("%s: %" PRIu64 " network operations with %" PRIu64 " bytes, of %" PRIu64 " with %" PRIu64,
         where, operations, bytes, most_operations, most_bytes);
  for (const layout::FunctionBlock& block : slot.functions) {
    if (Load(block.network_timed_bytes) != 0 && Load(slot.network.share_ppm) == 0)
      Fail("%s: bytes with network time where none is timed", where);
  }
}

void CheckSizeHistograms(const char* where, const layout::CommunicatorSlot& slot) {
  for (const layout::SizeHistogram& histogram : slot.size_histograms) {
    const uint64_t owner = Load(histogram.owner);
    if (owner == 0) continue;
    const uint64_t function = owner >> 8 & 0xff, size_class = owner & 0xff;
    if (function >= kFunctionCount || size_class >= kSizeClassCount)
      Fail("%s: a histogram of no function and size: %" PRIu64, where, owner);
    const uint64_t timed = Load(slot.functions[function].timed.timed_operations[size_class]);
    if (Sum(histogram.duration) != timed)
      Fail("%s, %s, size class %" PRIu64 ": durations by size are %" PRIu64 ", timed are %" PRIu64,
           where, kFunctions[function].name.data(), size_class, Sum(histogram.duration), timed);
  }
}

// Words that only grow and cannot wrap: counts, not sums of bytes or of times.
template <typename Take>
void ForEachCount(const layout::CommunicatorSlot& slot, Take take) {
  for (const layout::FunctionBlock& block : slot.functions) {
    take(Load(block.calls));
    take(Load(block.completed));
    for (const layout::AtomicU64& word : block.started.operations) take(Load(word));
    for (const layout::AtomicU64& word : block.timed.timed_operations) take(Load(word));
    for (const layout::AtomicU64& word : block.duration) take(Load(word));
    for (const layout::AtomicU64& word : block.bandwidth) take(Load(word));
  }
  for (const layout::NetworkDirectionBlock& direction : slot.network.directions)
    take(Load(direction.operations));
}

void CheckGrowth(const char* where, const layout::CommunicatorSlot& slot,
                 std::vector<uint64_t>& seen) {
  size_t index = 0;
  ForEachCount(slot, [&](uint64_t count) {
    if (index == seen.size()) seen.push_back(0);
    if (count < seen[index])
      Fail("%s: count %zu went from %" PRIu64 " to %" PRIu64, where, index, seen[index], count);
    seen[index++] = count;
  });
}

uint64_t CheckInFlight(const char* where, const layout::CommunicatorSlot& slot) {
  uint64_t shown = 0;
  for (size_t i = 0; i < layout::kInFlightEntries; ++i) {
    const layout::InFlightEntry& entry = slot.in_flight[i];
    const uint64_t ticket = Load(entry.ticket);
    if (ticket == 0) continue;
    ++shown;
    if ((ticket - 1) % layout::kInFlightEntries != i)
      Fail("%s: ticket %" PRIu64 " stands at %zu", where, ticket, i);
    const uint64_t function = Load(entry.function) & ~layout::kUntimedFlag;
    if (function >= kFunctionCount) Fail("%s: function %" PRIu64, where, function);
    const uint64_t parts = Load(entry.parts);
    if ((parts & 0xffffffff) > parts >> 32)
      Fail("%s: parts %" PRIx64 " of %" PRIu64, where, parts, ticket);
  }
  return shown;
}

void CheckCompletions(const char* where, const layout::CommunicatorSlot& slot, uint64_t timed) {
  uint64_t greatest = 0;
  for (size_t i = 0; i < layout::kCompletionEntries; ++i) {
    const layout::CompletionEntry& entry = slot.completions[i];
    const uint64_t ticket = Load(entry.ticket);
    if (ticket == 0) continue;
    if (ticket > greatest) greatest = ticket;
    const bool is_sound = (ticket - 1) % layout::kCompletionEntries == i &&
                          Load(entry.members) != 0 &&
                          Load(entry.function_and_sequence) >> 56 < kFunctionCount;
    if (!is_sound) Fail("%s: completion %" PRIu64 " at %zu", where, ticket, i);
  }
  if (greatest != timed)
    Fail("%s: %" PRIu64 " completions of %" PRIu64 " timed", where, greatest, timed);
}

}  // namespace

void Session::CheckMember(Member& member) {
  if (member.is_overflow) return;
  char where[64];
  std::snprintf(where, sizeof(where), "slot %u, generation %" PRIu64 ", v%d", member.slot,
                member.generation, member.version);
  const layout::CommunicatorSlot& slot = SlotAt(member.slot);
  const bool is_gone = member.is_gone.load();
  if (is_gone && layout::GenerationOf(Load(slot.state)) > member.generation) {
    has_taken_unchecked_slot_ = true;
    return;
  }
  const layout::SlotState state = is_gone ? layout::SlotState::kClosed : layout::SlotState::kLive;
  if (Load(slot.state) != layout::StateWord(member.generation, state))
    Fail("%s: state %" PRIx64, where, Load(slot.state));
  CheckSizeHistograms(where, slot);
  CheckNetwork(where, slot, network_stops.load(), network_bytes.load());

  Totals totals;
  for (size_t i = 0; i < kFunctionCount; ++i) {
    CheckAnnounced(where, i, slot.functions[i], member.account.functions[i]);
    const Totals of_function = CheckFunction(where, i, slot.functions[i]);
    totals.operations += of_function.operations;
    totals.completed += of_function.completed;
    totals.timed += of_function.timed;
  }
  CheckGrowth(where, slot, member.counts_seen);
  CheckCompletions(where, slot, totals.timed);
  const uint64_t shown = CheckInFlight(where, slot);
  if (is_gone && shown != 0) Fail("%s: closed, and %" PRIu64 " operations in flight", where, shown);
  const uint64_t uncompleted = totals.operations - totals.completed - shown;
  uncompleted_ += uncompleted;
  timed_ += totals.timed;
  if (!is_gone) return;
  uncompleted_of_the_gone_ += uncompleted;
  timed_of_the_gone_ += totals.timed;
}

void Session::CheckOverflow() {
  const layout::CommunicatorSlot& slot = SlotAt(kSlots);
  for (size_t i = 0; i < kFunctionCount; ++i) {
    CheckAnnounced("overflow slot", i, slot.functions[i], overflow_.functions[i]);
    if (CheckFunction("overflow slot", i, slot.functions[i]).completed != 0)
      Fail("completions in the overflow slot");
  }
  if (CheckInFlight("overflow slot", slot) != 0) Fail("operations in flight in the overflow slot");
}

void Session::CheckLosses() {
  for (int i = 0; i < kLossCount; ++i) {
    const uint64_t count = LossesOf(static_cast<Loss>(i));
    uint64_t& seen = losses_seen_[static_cast<size_t>(i)];
    if (count < seen) Fail("loss %d went from %" PRIu64 " to %" PRIu64, i, seen, count);
    seen = count;
  }
  if (LossesOf(Loss::kNoFreeCommunicatorSlot) != overflow_contexts_.load()) {
    Fail("no_free_slot is %" PRIu64 ", contexts without a slot are %" PRIu64,
         LossesOf(Loss::kNoFreeCommunicatorSlot), overflow_contexts_.load());
  }
  if (has_taken_unchecked_slot_) return;
  const uint64_t full = LossesOf(Loss::kInFlightFull) + LossesOf(Loss::kConcurrentStart);
  const uint64_t lost =
      full + LossesOf(Loss::kIncompleteAtFinalize) + LossesOf(Loss::kCommunicatorDrifting);
  const auto unseen = static_cast<int64_t>(uncompleted_ - lost);
  const auto completed_later = static_cast<int64_t>(full);
  if (unseen < -completed_later || unseen > static_cast<int64_t>(unseen_bound_.load())) {
    Fail("%" PRIu64 " operations are neither complete nor in flight, and %" PRIu64
         " losses say why (%" PRIu64 " full, %" PRIu64 " incomplete); at most %" PRIu64
         " had no part",
         uncompleted_, lost, full, LossesOf(Loss::kIncompleteAtFinalize), unseen_bound_.load());
  }
}

void Session::Check() {
  if (header_.load() == nullptr) return;
  uncompleted_ = uncompleted_of_the_gone_;
  timed_ = timed_of_the_gone_;
  for (const std::unique_ptr<Member>& member : members_) CheckMember(*member);
  CheckOverflow();
  CheckLosses();
  // Their slots may be claimed again from now on. Those without a slot of their own are kept as
  // contexts only.
  std::erase_if(members_,
                [](const std::unique_ptr<Member>& member) { return member->is_gone.load(); });
}

}  // namespace nccl_exporter::plugin::fuzz
