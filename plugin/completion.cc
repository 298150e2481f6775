// SPDX-License-Identifier: Apache-2.0
// How operations end: the parts that proxies report, when an operation counts as complete, and how a launch is
// recorded.
#include <algorithm>
#include <bit>

#include "plugin/channel_events.h"
#include "plugin/communicator.h"

namespace nccl_exporter {
namespace {

constexpr uint64_t kQuietNs = 1'000'000'000;  // without an event for so long, no further part is expected
constexpr uint64_t kSweepSteps = 4;           // a bounded piece of work at each event
// Channels are reported independently of each other, but not by so many launches apart.
constexpr uint64_t kLaunchesApart = 64;

}  // namespace

// Proxy operations.

bool Communicator::StartProxy(uint64_t abbreviated) {
  Operation& operation = At(abbreviated);
  const uint64_t state = LoadAcquire(operation.state);
  if (!IsActive(state, abbreviated)) return CountStray(state, abbreviated), false;
  const uint64_t ticket = TicketOf(state);
  const uint64_t now_ns = NowNs();
  if (LoadRelaxed(operation.parts_ticket) != ticket) BeginParts(operation, ticket);
  if (LoadRelaxed(operation.proxy_parts) == 0 || now_ns < LoadRelaxed(operation.first_start_ns)) {
    StoreRelaxed(operation.first_start_ns, now_ns);
  }
  CountPart(operation, ticket, kOneAnnounced, now_ns);
  // NCCL hands the proxy operations of a launch over together: now those of every earlier launch have come.
  NoteLatest(operation, ticket);
  Sweep(now_ns);
  return true;
}

void Communicator::StopProxy(uint64_t abbreviated) {
  Operation& operation = At(abbreviated);
  const uint64_t state = LoadAcquire(operation.state);
  if (!IsActive(state, abbreviated)) return CountStray(state, abbreviated);
  const uint64_t ticket = TicketOf(state);
  const uint64_t parts = LoadRelaxed(operation.proxy_parts);
  if (LoadRelaxed(operation.parts_ticket) != ticket || DoneOf(parts) >= AnnouncedOf(parts)) {
    return recorder_.CountLoss(Loss::kStopWithoutStart);
  }
  const uint64_t now_ns = NowNs();
  if (now_ns > LoadRelaxed(operation.last_stop_ns)) StoreRelaxed(operation.last_stop_ns, now_ns);
  CountPart(operation, ticket, kOneDone, now_ns);
  Sweep(now_ns);
}

void Communicator::CountPart(Operation& operation, uint64_t ticket, uint64_t change, uint64_t now_ns) {
  const uint64_t parts = LoadRelaxed(operation.proxy_parts) + change;
  StoreRelaxed(operation.proxy_parts, parts);
  StoreRelaxed(operation.last_part_ns, now_ns);
  recorder_.ShowParts(ticket, parts);
  recorder_.ShowLastPart(ticket, now_ns);
}

// Kernel channels.

void Communicator::BeginParts(Operation& operation, uint64_t ticket) {
  StoreRelaxed(operation.proxy_parts, 0);
  StoreRelaxed(operation.seen, 0);
  StoreRelaxed(operation.stamped, 0);
  StoreRelaxed(operation.stopped, 0);
  StoreRelaxed(operation.first_start_ns, 0);
  StoreRelaxed(operation.latest_start_ns, 0);
  StoreRelaxed(operation.last_stop_ns, 0);
  StoreRelaxed(operation.soonest_stop_ns, ~uint64_t{0});
  StoreRelaxed(operation.last_part_ns, 0);
  operation.rejection.store(0, std::memory_order_relaxed);
  StoreRelaxed(operation.parts_ticket, ticket);
}

void Communicator::CountStray(uint64_t state, uint64_t abbreviated) {
  const bool is_known = (TicketOf(state) & Handle::kTicketMask) == abbreviated;
  recorder_.CountLoss(is_known ? Loss::kAfterCompletion : Loss::kStaleHandle);
}

// All channels that were seen have stopped. They may be all there are: fewer may come than were announced, or none
// were.
void Communicator::EndChannels(Operation& operation, uint64_t ticket) {
  const uint64_t now_ns = NowNs();
  StoreRelaxed(operation.last_part_ns, now_ns);
  NoteLatest(operation, ticket);
  const auto channels = static_cast<uint32_t>(std::popcount(LoadRelaxed(operation.seen)));
  const uint32_t announced = operation.channels.load(std::memory_order_relaxed);
  operation.lacks_channels.store(channels < announced, std::memory_order_relaxed);
  if (announced != 0 && channels >= announced) {
    Finish(operation, ticket, now_ns);
  } else {
    recorder_.ShowParts(ticket, channels * (kOneAnnounced | kOneDone));
    recorder_.ShowLastPart(ticket, now_ns);
  }
  Sweep(now_ns);
}

void Communicator::NoteLatest(const Operation& operation, uint64_t ticket) {
  if (ticket <= LoadRelaxed(latest_)) return;
  StoreRelaxed(latest_, ticket);
  StoreRelaxed(latest_order_, OrderOf(operation, ticket));
}

// Completion.

void Communicator::Finish(Operation& operation, uint64_t ticket, uint64_t now_ns) {
  if (!Exchange(operation.state, PhaseWord(ticket, Phase::kActive), PhaseWord(ticket, Phase::kDone))) return;
  const uint64_t launch_ticket = LoadRelaxed(operation.launch);
  if (launch_ticket == 0) {
    StoreRelaxed(operation.previous_member, 0);
    return RecordMembers(ticket, 1, nullptr, now_ns);
  }
  Launch& launch = LaunchAt(launch_ticket);
  if (launch.pending.fetch_sub(1, std::memory_order_acq_rel) - 1 == Launch::kDone) RecordLaunch(launch, now_ns);
}

// Ends an operation of which no event is expected any more, or can be waited for.
void Communicator::Resolve(Operation& operation, uint64_t ticket, uint64_t now_ns) {
  if (LoadAcquire(operation.state) != PhaseWord(ticket, Phase::kActive)) return;
  const Progress progress = ProgressOf(operation, ticket);
  const bool can_have_none = MayHaveNoParts(operation) && progress == Progress::kNoPart;  // no network
  if (progress != Progress::kAllStopped && !can_have_none) {
    GiveUp(operation, ticket, Loss::kOperationAbandoned);
  }
  Finish(operation, ticket, now_ns);
}

// What is not over has no interval, and its companions' share of the time is not known.
void Communicator::GiveUp(Operation& operation, uint64_t ticket, Loss loss) {
  recorder_.CountLoss(loss);
  BeginParts(operation, ticket);
  Reject(operation, loss);
}

// Ends operations of which no event is expected any more, from the oldest on: NCCL runs the operations of a
// communicator in order.
void Communicator::Sweep(uint64_t now_ns) {
  for (uint64_t step = 0; step < kSweepSteps; ++step) {
    const uint64_t ticket = LoadRelaxed(oldest_);
    if (ticket >= LoadRelaxed(latest_)) return;
    Operation& operation = At(ticket);
    if (LoadAcquire(operation.state) == PhaseWord(ticket, Phase::kActive)) {
      if (!IsOvertaken(operation, ticket, now_ns)) return;
      Resolve(operation, ticket, now_ns);
    }
    StoreRelaxed(oldest_, ticket + 1);
  }
}

// Whether a later launch has run or, by proxies, begun, and either has every channel of this operation gone over to a
// later launch, or it has been quiet. The first alone is not enough where there are channels, which are reported
// independently of each other; proxy operations have none.
bool Communicator::IsOvertaken(const Operation& operation, uint64_t ticket, uint64_t now_ns) {
  const uint64_t order = OrderOf(operation, ticket);
  if (order >= LoadRelaxed(latest_order_)) return false;
  if (LoadRelaxed(operation.parts_ticket) != ticket) return now_ns >= LoadRelaxed(operation.call_ns) + kQuietNs;
  if (ProgressOf(operation, ticket) != Progress::kAllStopped) return false;
  // Where the number of channels is exact, those that lack may only be late.
  const bool may_lack_channels = !operation.channels_are_exact.load(std::memory_order_relaxed) ||
                                 LoadRelaxed(latest_order_) >= order + kLaunchesApart;
  return (may_lack_channels && IsTakenOver(operation, order)) ||
         now_ns >= LoadRelaxed(operation.last_part_ns) + kQuietNs;
}

bool Communicator::IsTakenOver(const Operation& operation, uint64_t order) {
  for (uint64_t seen = LoadRelaxed(operation.seen); seen != 0; seen &= seen - 1) {
    if (LoadRelaxed(OwnerOf(operation, static_cast<uint32_t>(std::countr_zero(seen)))) <= order) return false;
  }
  return true;
}

void Communicator::RecordLaunch(Launch& launch, uint64_t now_ns) {
  if (now_ns == 0) now_ns = NowNs();
  RecordMembers(LoadRelaxed(launch.last_member), LoadRelaxed(launch.members), &launch, now_ns);
  StoreRelease(launch.ticket, 0);
}

namespace {

// Proxy operations beside kernel timing tell when an operation is over, not how long it took.
bool HasInterval(const Operation& operation, uint64_t ticket, TimingSource source) {
  return ProgressOf(operation, ticket) == Progress::kAllStopped &&
         (source == TimingSource::kProxy || LoadRelaxed(operation.seen) != 0);
}

// Why the operation's own time stamps cannot be believed, as 1 + Loss; 0 if they can.
uint8_t RejectionOf(const Operation& operation, TimingSource source) {
  const uint8_t rejection = operation.rejection.load(std::memory_order_relaxed);
  const bool lacks_stamp =
      source != TimingSource::kProxy && LoadRelaxed(operation.stamped) != LoadRelaxed(operation.seen);
  return rejection == 0 && lacks_stamp ? 1 + static_cast<uint8_t>(Loss::kZeroTimestamp) : rejection;
}

void Cover(LaunchTimes& launch, const Operation& operation) {
  launch.start_ns = std::min(launch.start_ns, LoadRelaxed(operation.first_start_ns));
  launch.stop_ns = std::max(launch.stop_ns, LoadRelaxed(operation.last_stop_ns));
  launch.delivered_ns = std::max(launch.delivered_ns, LoadRelaxed(operation.last_part_ns));
  if (operation.call_is_bound.load(std::memory_order_relaxed)) {
    launch.call_ns = std::max(launch.call_ns, LoadRelaxed(operation.call_ns));
  }
}

// A launch has up to three parts; one of a single operation has one, and nothing to tell apart.
int PartsOf(uint64_t members) { return members == 1 ? 1 : kLaunchParts; }
size_t PartOf(const Operation& operation, uint64_t members) {
  if (members == 1) return 0;
  return static_cast<size_t>(LaunchPartOf(operation.function.load(std::memory_order_relaxed)));
}

// Whether a channel had stopped before another one started.
bool HasDisjointChannels(const Operation& operation) {
  return LoadRelaxed(operation.soonest_stop_ns) < LoadRelaxed(operation.latest_start_ns);
}

}  // namespace

bool Communicator::Believes(const LaunchTimes& launch, uint64_t timed_members) {
  const bool is_contradicted = is_contradicted_.load(std::memory_order_relaxed);
  const std::optional<Loss> verdict = is_contradicted ? Loss::kDrift : plausibility_.Judge(launch);
  if (!verdict) return true;
  recorder_.CountLosses(*verdict, timed_members);
  if (!held_times_.IsEmpty()) recorder_.CountLosses(Loss::kRingOverrun, held_times_.Drop());
  if (Plausibility::IsDrift(*verdict)) {
    is_contradicted_.store(true, std::memory_order_relaxed);
    BeginDrift(0);
  }
  return false;
}

// What becomes of the times of a launch, by part. Every member that has stopped and is not timed is counted once: by
// what is wrong with its own time stamps, with those of its launch, or else as a companion.
Communicator::Belief Communicator::ShareTimes(const Turn& turn, uint64_t last_member, uint64_t members,
                                              const Launch* launch, LaunchShare* shares) {
  LaunchTimes times{
      .last_ticket = last_member, .newest_ticket = LoadRelaxed(next_operation_), .start_ns = ~uint64_t{0}};
  if (launch != nullptr) times.call_ns = LoadRelaxed(launch->called_after);
  uint64_t ticket = last_member;
  for (uint64_t i = 0; i < members && ticket != 0; ++i) {
    const Operation& operation = At(ticket);
    LaunchShare& share = shares[PartOf(operation, members)];
    if (HasInterval(operation, ticket, source())) {
      if (const uint8_t rejection = RejectionOf(operation, source()); rejection != 0) {
        recorder_.CountLoss(static_cast<Loss>(rejection - 1));
        share.Reject();
      } else {
        share.CountGood();
        Cover(times, operation);
        times.has_disjoint_channels = members == 1 && HasDisjointChannels(operation);
      }
      share.Add(LoadRelaxed(operation.first_start_ns), LoadRelaxed(operation.last_stop_ns),
                LoadRelaxed(operation.bytes));
    } else if (LoadRelaxed(operation.parts_ticket) == ticket &&
               operation.rejection.load(std::memory_order_relaxed) != 0) {
      share.Reject();
    }
    times.first_ticket = ticket;
    ticket = LoadRelaxed(operation.previous_member);
  }

  uint64_t good = 0;
  for (LaunchShare* share = shares; share != shares + PartsOf(members); ++share) {
    if (share->is_rejected() && share->good() != 0) recorder_.CountLosses(Loss::kCompanion, share->good());
    if (!share->is_rejected()) good += share->good();
  }
  if (good == 0) return Belief::kNo;
  const uint64_t rejection = launch != nullptr ? LoadRelaxed(launch->rejection) : 0;
  if (rejection != 0) {
    recorder_.CountLosses(static_cast<Loss>(rejection - 1), good);
  } else if (!turn) {
    recorder_.CountLosses(Loss::kJudgedAtOnce, good);
  } else {
    times.earlier_ns = EarlierInFlightNs(times.first_ticket);
    if (!reads_gpu_clock_.load(std::memory_order_relaxed)) return Belief::kYes;
    if (Believes(times, good)) return Plausibility::MayBeOverrun(times) ? Belief::kLater : Belief::kYes;
  }
  for (LaunchShare* share = shares; share != shares + PartsOf(members); ++share) share->Reject();
  return Belief::kNo;
}

// Until when operations announced before that one, and not over yet, ran at least; 0 if there are none. Only as many as
// may be in flight by their channels' being reported independently of each other: the others have been recorded.
uint64_t Communicator::EarlierInFlightNs(uint64_t ticket) {
  constexpr uint64_t kMostSteps = 16;
  const uint64_t oldest = std::max(LoadRelaxed(oldest_), ticket - std::min(ticket, kMostSteps));
  uint64_t latest_ns = 0;
  while (ticket-- > oldest) {
    const Operation& operation = At(ticket);
    if (LoadAcquire(operation.state) != PhaseWord(ticket, Phase::kActive)) continue;
    if (LoadRelaxed(operation.parts_ticket) != ticket || LoadRelaxed(operation.seen) == 0) continue;
    latest_ns = std::max({latest_ns, LoadRelaxed(operation.first_start_ns), LoadRelaxed(operation.last_stop_ns)});
  }
  return latest_ns;
}

// Records all members of a launch, whose times depend on each other, and frees their entries.
[[gnu::flatten]] void Communicator::RecordMembers(uint64_t last_member, uint64_t members, const Launch* launch,
                                                  uint64_t now_ns) {
  {
    const Turn turn{&is_recording_};
    RecordMembersInTurn(turn, last_member, members, launch, now_ns);
    const uint64_t unfollowed_until = LoadAcquire(unfollowed_until_);
    if (unfollowed_until != 0 && last_member > unfollowed_until) CompleteUnfollowed(turn, now_ns);
  }
  if (recorder_.HasDeferredCompletions()) ShowDeferredCompletions();
}

void Communicator::RecordMembersInTurn(const Turn& turn, uint64_t last_member, uint64_t members, const Launch* launch,
                                       uint64_t now_ns) {
  LaunchShare shares[kLaunchParts];
  const Belief belief = ShareTimes(turn, last_member, members, launch, shares);
  if (belief == Belief::kYes && !held_times_.IsEmpty()) held_times_.Release(recorder_);
  uint64_t ticket = last_member;
  for (uint64_t i = 0; i < members && ticket != 0; ++i) {
    Operation& operation = At(ticket);
    if (LoadAcquire(operation.state) != PhaseWord(ticket, Phase::kDone)) return;
    const LaunchShare& share = shares[PartOf(operation, members)];
    if (!operation.is_given_up.load(std::memory_order_relaxed)) {
      RecordMember(turn, operation, ticket, share, belief, members, now_ns);
    }
    recorder_.HideInFlight(ticket);
    const uint64_t previous = LoadRelaxed(operation.previous_member);
    StoreRelease(operation.state, PhaseWord(ticket, Phase::kFree));
    ticket = previous;
  }
}

void Communicator::RecordMember(const Turn& turn, const Operation& operation, uint64_t ticket, const LaunchShare& share,
                                Belief belief, uint64_t members, uint64_t now_ns) {
  const Function function = operation.function.load(std::memory_order_relaxed);
  if (HasInterval(operation, ticket, source())) {
    const uint64_t bytes = LoadRelaxed(operation.bytes);
    if (!share.is_rejected()) {
      const Completion completion{.function = function,
                                  .bytes = bytes,
                                  .duration_ns = share.DurationNs(bytes),
                                  .members = static_cast<uint32_t>(members),
                                  .sequence = LoadRelaxed(operation.sequence),
                                  .call_ns = LoadRelaxed(operation.call_ns),
                                  .start_ns = LoadRelaxed(operation.first_start_ns),
                                  .stop_ns = LoadRelaxed(operation.last_stop_ns),
                                  .now_ns = now_ns};
      belief == Belief::kLater ? held_times_.Keep(completion, recorder_) : recorder_.RecordTimes(completion);
    }
    if (operation.channels_are_exact.load(std::memory_order_relaxed) &&
        operation.lacks_channels.load(std::memory_order_relaxed)) {
      recorder_.CountLoss(Loss::kChannelsMissing);
    }
  }
  recorder_.CountCompleted(turn, function, now_ns);
}

void Communicator::CompleteUnfollowed(const Turn& turn, uint64_t now_ns) {
  StoreRelaxed(unfollowed_until_, 0);
  for (size_t function = 0; function < kFunctionCount; ++function) {
    const uint64_t count = unfollowed_[function].exchange(0, std::memory_order_relaxed);
    if (count != 0) recorder_.CountCompleted(turn, static_cast<Function>(function), now_ns, count);
  }
}

// Leaves every entry free, for the communicator that will use this place next. What is not complete is not counted as
// such.
void Communicator::Finalize() {
  const uint64_t now_ns = NowNs();
  bool is_all_complete = true;
  for (Operation& operation : operations_) {  // all of them: the oldest may be older than the ring is long
    const uint64_t state = LoadAcquire(operation.state);
    if (PhaseOf(state) != Phase::kActive) continue;
    const uint64_t ticket = TicketOf(state);
    const Progress progress = ProgressOf(operation, ticket);
    if (progress != Progress::kAllStopped) {
      const bool cannot_be_seen = MayHaveNoParts(operation) && progress == Progress::kNoPart;
      if (progress == Progress::kRunning) {
        GiveUp(operation, ticket, Loss::kIncompleteAtFinalize);
      } else if (!cannot_be_seen) {
        recorder_.CountLoss(Loss::kIncompleteAtFinalize);
      }
      operation.is_given_up.store(true, std::memory_order_relaxed);
      is_all_complete = false;
    }
    Finish(operation, ticket, now_ns);
  }
  for (Launch& launch : launches_) {
    if (LoadAcquire(launch.ticket) != 0) Close(launch, now_ns);
  }
  if (const Turn turn{&is_recording_}) {
    held_times_.Release(recorder_);
    if (is_all_complete) CompleteUnfollowed(turn, now_ns);
  }
  ShowDeferredStarts();
  ShowDeferredCompletions();
}

}  // namespace nccl_exporter
