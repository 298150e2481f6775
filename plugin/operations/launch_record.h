// SPDX-License-Identifier: Apache-2.0
// Record of one launch while it is judged: its members, what they say of its time, the share of
// each in it (proto/README.md, rule 5), and what was decided. The thread that ends the last member
// of the launch, on its stack.
#pragma once

#include <algorithm>
#include <cstdint>

#include "plugin/operations/communicator_state.h"
#include "plugin/operations/operation.h"
#include "plugin/timing/timestamp_check.h"
#include "plugin/timing/work_items.h"
#include "proto/buckets.h"
#include "proto/collective.h"
#include "proto/loss.h"

namespace nccl_exporter::plugin {

// Part of a launch. Collectives, sends and receives are timed apart: a send and a receive run at
// the same time.
struct LaunchShare {
  uint64_t start_ns = ~uint64_t{0};
  uint64_t stop_ns = 0;  // 0: no operation has an interval
  uint128_t weight = 0;
  uint64_t good = 0;  // operations with good time stamps of their own
  bool is_rejected = false;

  static uint64_t WeightOf(uint64_t bytes) { return bytes > 0 ? bytes : 1; }
  void Add(uint64_t first_ns, uint64_t last_ns, uint64_t bytes) {
    start_ns = std::min(start_ns, first_ns);
    stop_ns = std::max(stop_ns, last_ns);
    weight += WeightOf(bytes);
  }
  // Duration of one of the members that were added.
  uint64_t DurationNs(uint64_t bytes) const {
    const uint64_t span_ns = stop_ns > start_ns ? stop_ns - start_ns : 0;
    return weight <= WeightOf(bytes)
               ? span_ns
               : static_cast<uint64_t>(uint128_t{span_ns} * WeightOf(bytes) / weight);
  }
};
inline constexpr size_t kLaunchParts = 3;

// Counter of operations for each of 64 channels, of which the highest is asked for.
// The counters lie across words: word i holds bit i of all 64 counters.
class MostOnAChannel {
 public:
  // An operation that ran on these channels, one bit each.
  void Add(uint64_t channels) {
    for (uint64_t& bit : bits_) {
      const uint64_t carry = bit & channels;
      bit ^= channels;
      channels = carry;
    }
    overflown_ |= channels;
  }
  // The most operations that one channel has; no more than 2^kBits.
  uint64_t Count() const {
    if (overflown_ != 0) return uint64_t{1} << kBits;
    uint64_t count = 0;
    // The channels that have the most, by the bits that have been looked at.
    uint64_t most = ~uint64_t{0};
    for (int i = kBits; i-- > 0;) {
      if ((bits_[i] & most) == 0) continue;
      most &= bits_[i];
      count |= uint64_t{1} << i;
    }
    return count;
  }

 private:
  static constexpr int kBits = 7;
  static_assert(uint64_t{1} << kBits > WorkItems::kRingEntries);
  uint64_t bits_[kBits]{};
  uint64_t overflown_ = 0;
};

// Whether the times of a launch are recorded.
enum class Belief : uint8_t { kNo, kLater, kYes };

struct LaunchRecord {
  CommunicatorState& state;
  const uint64_t last_member;  // ticket
  const uint64_t members;
  const Launch* const launch;  // nullptr: one operation that belongs to none
  const uint64_t now_ns;
  LaunchTimes times{.start_ns = ~uint64_t{0}};
  LaunchShare shares[kLaunchParts]{};
  uint64_t carried = 0;  // operations without parts of their own
  Belief belief = Belief::kNo;
  uint64_t uncompared_before = 0;  // of uncompared_items, when the first item of the launch ran

  // Why the whole launch was rejected before its times were known, as 1 + Loss; 0: it was not.
  uint64_t rejection() const { return launch != nullptr ? LoadRelaxed(launch->rejection) : 0; }

  // Reads the times of all members. What is wrong with a member's own time stamps is counted here.
  void Gather() {
    times.last_ticket = last_member;
    times.first_item = LoadRelaxed(state.At(last_member).first_item);
    if (launch != nullptr) times.call_ns = LoadRelaxed(launch->called_after);
    ForEachMember(
        [this](const Operation& operation, uint64_t ticket) { Gather(operation, ticket); });
    if (members > 1) times.items = MostItemsOnAChannel();
    CarryTimes();
  }

  // Members with good time stamps of their own, in parts of the launch that are timed. Those in
  // other parts are counted as untimed members.
  uint64_t CountGood() {
    uint64_t good = 0;
    for (size_t part = 0; part < (members == 1 ? 1 : kLaunchParts); ++part) {
      const LaunchShare& share = shares[part];
      if (!share.is_rejected) {
        good += share.good;
      } else if (share.good != 0) {
        state.recorder().CountLosses(Loss::kLaunchMemberUntimed, share.good);
      }
    }
    return good;
  }

  bool IsTimed(const Operation& operation, uint64_t ticket) const {
    if (belief == Belief::kNo || shares[PartOf(operation)].is_rejected) return false;
    return IsCarried(operation) || HasInterval(operation, ticket);
  }
  Completion TimesOf(const Operation& operation) const {
    const LaunchShare& share = shares[PartOf(operation)];
    const bool is_carried = IsCarried(operation);
    const uint64_t bytes = LoadRelaxed(operation.bytes);
    return {.function = LoadRelaxed(operation.function),
            .members = static_cast<uint32_t>(members),
            .bytes = bytes,
            .duration_ns = share.DurationNs(bytes),
            .sequence = LoadRelaxed(operation.sequence),
            .call_ns = LoadRelaxed(operation.call_ns),
            .start_ns = is_carried ? share.start_ns : LoadRelaxed(operation.first_start_ns),
            .stop_ns = is_carried ? share.stop_ns : LoadRelaxed(operation.last_stop_ns),
            .now_ns = now_ns};
  }
  // Whether the operation has the time of its launch, and no parts of its own.
  bool IsCarried(const Operation& operation) const {
    return LoadRelaxed(operation.is_carried) && shares[PartOf(operation)].stop_ns != 0;
  }

  // From the last to the first. Bounded by the number of members that joined.
  template <typename Visit>
  void ForEachMember(const Visit& visit) {
    uint64_t ticket = last_member;
    for (uint64_t i = 0; i < members && ticket != 0; ++i) {
      const Operation& operation = state.At(ticket);
      visit(operation, ticket);
      ticket = LoadRelaxed(operation.previous_member);
    }
  }

  void Gather(const Operation& operation, uint64_t ticket) {
    LaunchShare& share = shares[PartOf(operation)];
    const uint64_t bytes = LoadRelaxed(operation.bytes);
    bool is_covered = false;
    if (HasInterval(operation, ticket)) {
      is_covered = GatherInterval(operation, share);
      share.Add(LoadRelaxed(operation.first_start_ns), LoadRelaxed(operation.last_stop_ns), bytes);
    } else if (LoadRelaxed(operation.is_carried)) {
      share.weight += LaunchShare::WeightOf(bytes);
      ++carried;
      is_covered = true;
    } else if (LoadRelaxed(operation.is_given_up)) {
      share.is_rejected = true;
    }
    if (!is_covered) ++times.incomplete;
    times.first_ticket = ticket;
    const uint32_t item = LoadRelaxed(operation.first_item);
    if (static_cast<int32_t>(item - times.first_item) < 0) times.first_item = item;
  }
  // False if the operation's own time stamps cannot be believed.
  bool GatherInterval(const Operation& operation, LaunchShare& share) {
    if (const uint8_t rejection = RejectionOf(operation); rejection != 0) {
      state.recorder().CountLoss(static_cast<Loss>(rejection - 1));
      share.is_rejected = true;
      return false;
    }
    ++share.good;
    times.start_ns = std::min(times.start_ns, LoadRelaxed(operation.first_start_ns));
    times.stop_ns = std::max(times.stop_ns, LoadRelaxed(operation.last_stop_ns));
    const uint64_t first_part_ns = LoadRelaxed(operation.first_part_ns);
    times.started_ns =
        first_part_ns == 0 ? LaunchTimes::kNeverSeen : std::max(times.started_ns, first_part_ns);
    times.delivered_ns = std::max(times.delivered_ns, LoadRelaxed(operation.last_part_ns));
    if (LoadRelaxed(operation.call_is_bound))
      times.call_ns = std::max(times.call_ns, LoadRelaxed(operation.call_ns));
    // A channel had stopped before another one started.
    times.has_disjoint_channels = members == 1 && LoadRelaxed(operation.soonest_stop_ns) <
                                                      LoadRelaxed(operation.latest_start_ns);
    return true;
  }
  uint64_t MostItemsOnAChannel() {
    MostOnAChannel items;
    ForEachMember([&](const Operation& operation, uint64_t ticket) {
      if (HasInterval(operation, ticket)) items.Add(LoadRelaxed(operation.seen));
    });
    return items.Count();
  }
  // Operations without parts of their own are timed if the one that carries them is.
  void CarryTimes() {
    if (carried == 0) return;
    LaunchShare& share = shares[0];  // of the collectives
    if (share.stop_ns == 0) share.is_rejected = true;
    share.good += share.stop_ns != 0 ? carried : 0;
  }

  // Proxy operations do not show how long an operation took: they begin when the host hands them
  // over, and then wait for those of earlier launches.
  bool HasInterval(const Operation& operation, uint64_t ticket) const {
    if (LoadRelaxed(operation.is_given_up)) return false;
    return ProgressOf(operation, ticket) == Progress::kAllStopped &&
           LoadRelaxed(operation.seen) != 0;
  }
  // Why the operation's own time stamps cannot be believed, as 1 + Loss; 0 if they can.
  uint8_t RejectionOf(const Operation& operation) const {
    const uint8_t rejection = LoadRelaxed(operation.rejection);
    if (rejection != 0) return rejection;
    if (LoadRelaxed(operation.first_start_ns) == 0)
      return 1 + static_cast<uint8_t>(Loss::kZeroTimestamp);
    if (LoadRelaxed(operation.stamped) != LoadRelaxed(operation.seen))
      return 1 + static_cast<uint8_t>(Loss::kMissingTimestamp);
    // The channels that lack may have begun earlier, or ended later.
    const bool lacks_channels =
        LoadRelaxed(operation.channels_are_exact) && LoadRelaxed(operation.lacks_channels);
    return lacks_channels ? 1 + static_cast<uint8_t>(Loss::kChannelsMissing) : 0;
  }

  // An operation that is alone is in the first part.
  size_t PartOf(const Operation& operation) const {
    const Function function = LoadRelaxed(operation.function);
    if (members == 1 || !TraitsOf(function).is_point_to_point) return 0;
    return function == Function::kSend ? 1 : 2;
  }
};

}  // namespace nccl_exporter::plugin
