// SPDX-License-Identifier: Apache-2.0
// Record of one launch while it is judged: its members, what they say of its time, and what was
// decided. The thread that ends the last member of the launch, on its stack.
#pragma once

#include <algorithm>
#include <cstdint>

#include "plugin/operations/communicator_state.h"
#include "plugin/operations/launch_share.h"
#include "plugin/operations/operation.h"
#include "plugin/timing/timestamp_check.h"
#include "proto/loss.h"

namespace nccl_exporter::plugin {

// Whether the times of a launch are recorded: not at all, when later times agree with them, or at
// once.
enum class Belief : uint8_t { kNo, kLater, kYes };

class LaunchRecord {
 public:
  // `launch` nullptr: one operation that belongs to none.
  LaunchRecord(CommunicatorState& state, uint64_t last_member, uint64_t members,
               const Launch* launch, uint64_t now_ns)
      : state_(state),
        last_member_(last_member),
        members_(members),
        launch_(launch),
        now_ns_(now_ns) {}

  uint64_t last_member() const { return last_member_; }  // ticket
  uint64_t members() const { return members_; }
  uint64_t now_ns() const { return now_ns_; }
  // Why the whole launch was rejected before its times were known, as 1 + Loss; 0: it was not.
  uint64_t rejection() const { return launch_ != nullptr ? LoadRelaxed(launch_->rejection) : 0; }
  LaunchTimes& times() { return times_; }
  Belief belief() const { return belief_; }
  void SetBelief(Belief belief) { belief_ = belief; }
  // Value of uncompared_items when the first item of the launch ran.
  uint64_t uncompared_before() const { return uncompared_before_; }
  void SetUncomparedBefore(uint64_t items) { uncompared_before_ = items; }

  // Reads the times of all members. What is wrong with a member's own time stamps is counted here.
  void Gather() {
    times_.last_ticket = last_member_;
    times_.first_item = LoadRelaxed(state_.At(last_member_).first_item);
    if (launch_ != nullptr) times_.call_ns = LoadRelaxed(launch_->called_after);
    ForEachMember(
        [this](const Operation& operation, uint64_t ticket) { Gather(operation, ticket); });
    if (members_ > 1) times_.items = MostItemsOnAChannel();
    CarryTimes();
  }

  // Members with good time stamps of their own, in parts of the launch that are timed. Those in
  // other parts are counted as untimed members.
  uint64_t CountGood() {
    uint64_t good = 0;
    for (int part = 0; part < parts(); ++part) {
      const LaunchShare& share = shares_[part];
      if (!share.is_rejected()) {
        good += share.good();
      } else if (share.good() != 0) {
        state_.recorder().CountLosses(Loss::kLaunchMemberUntimed, share.good());
      }
    }
    return good;
  }

  // After the launch was judged: whether a member is timed.
  bool IsTimed(const Operation& operation, uint64_t ticket) const {
    if (belief_ == Belief::kNo || shares_[PartOf(operation)].is_rejected()) return false;
    return IsCarried(operation) || HasInterval(operation, ticket);
  }
  // The times of a member that is timed.
  Completion TimesOf(const Operation& operation) const {
    const LaunchShare& share = shares_[PartOf(operation)];
    const bool is_carried = IsCarried(operation);
    const uint64_t bytes = LoadRelaxed(operation.bytes);
    return {.function = LoadRelaxed(operation.function),
            .members = static_cast<uint32_t>(members_),
            .bytes = bytes,
            .duration_ns = share.DurationNs(bytes),
            .sequence = LoadRelaxed(operation.sequence),
            .call_ns = LoadRelaxed(operation.call_ns),
            .start_ns = is_carried ? share.start_ns() : LoadRelaxed(operation.first_start_ns),
            .stop_ns = is_carried ? share.stop_ns() : LoadRelaxed(operation.last_stop_ns),
            .now_ns = now_ns_};
  }
  // Whether the operation has the time of its launch, and no parts of its own.
  bool IsCarried(const Operation& operation) const {
    return LoadRelaxed(operation.is_carried) && shares_[PartOf(operation)].has_interval();
  }

 private:
  // From the last to the first. Bounded by the number of members that joined.
  template <typename Visit>
  void ForEachMember(const Visit& visit) {
    uint64_t ticket = last_member_;
    for (uint64_t i = 0; i < members_ && ticket != 0; ++i) {
      const Operation& operation = state_.At(ticket);
      visit(operation, ticket);
      ticket = LoadRelaxed(operation.previous_member);
    }
  }

  void Gather(const Operation& operation, uint64_t ticket) {
    LaunchShare& share = shares_[PartOf(operation)];
    const uint64_t bytes = LoadRelaxed(operation.bytes);
    bool is_covered = false;
    if (HasInterval(operation, ticket)) {
      is_covered = GatherInterval(operation, share);
      share.Add(LoadRelaxed(operation.first_start_ns), LoadRelaxed(operation.last_stop_ns), bytes);
    } else if (LoadRelaxed(operation.is_carried)) {
      share.AddCarried(bytes);
      ++carried_;
      is_covered = true;
    } else if (LoadRelaxed(operation.is_given_up)) {
      share.Reject();
    }
    if (!is_covered) ++times_.incomplete;
    times_.first_ticket = ticket;
    const uint32_t item = LoadRelaxed(operation.first_item);
    if (static_cast<int32_t>(item - times_.first_item) < 0) times_.first_item = item;
  }
  // False if the operation's own time stamps cannot be believed.
  bool GatherInterval(const Operation& operation, LaunchShare& share) {
    if (const uint8_t rejection = RejectionOf(operation); rejection != 0) {
      state_.recorder().CountLoss(static_cast<Loss>(rejection - 1));
      share.Reject();
      return false;
    }
    share.CountGood();
    Cover(operation);
    // A channel had stopped before another one started.
    times_.has_disjoint_channels = members_ == 1 && LoadRelaxed(operation.soonest_stop_ns) <
                                                        LoadRelaxed(operation.latest_start_ns);
    return true;
  }
  void Cover(const Operation& operation) {
    times_.start_ns = std::min(times_.start_ns, LoadRelaxed(operation.first_start_ns));
    times_.stop_ns = std::max(times_.stop_ns, LoadRelaxed(operation.last_stop_ns));
    const uint64_t first_part_ns = LoadRelaxed(operation.first_part_ns);
    times_.started_ns =
        first_part_ns == 0 ? LaunchTimes::kNeverSeen : std::max(times_.started_ns, first_part_ns);
    times_.delivered_ns = std::max(times_.delivered_ns, LoadRelaxed(operation.last_part_ns));
    if (LoadRelaxed(operation.call_is_bound)) {
      times_.call_ns = std::max(times_.call_ns, LoadRelaxed(operation.call_ns));
    }
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
    if (carried_ == 0) return;
    LaunchShare& share = shares_[members_ == 1 ? 0 : static_cast<size_t>(LaunchPart::kCollectives)];
    share.has_interval() ? share.CountGood(carried_) : share.Reject();
  }

  // Proxy operations show when an operation is over, not how long it took: they begin when the host
  // hands them over, and then wait for those of earlier launches.
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

  // A launch has up to three parts; a launch of one operation has one.
  int parts() const { return members_ == 1 ? 1 : kLaunchParts; }
  size_t PartOf(const Operation& operation) const {
    if (members_ == 1) return 0;
    return static_cast<size_t>(LaunchPartOf(LoadRelaxed(operation.function)));
  }

  CommunicatorState& state_;
  const uint64_t last_member_;
  const uint64_t members_;
  const Launch* const launch_;
  const uint64_t now_ns_;
  LaunchTimes times_{.start_ns = ~uint64_t{0}};
  LaunchShare shares_[kLaunchParts];
  uint64_t carried_ = 0;  // operations without parts of their own
  Belief belief_ = Belief::kNo;
  uint64_t uncompared_before_ = 0;
};

}  // namespace nccl_exporter::plugin
