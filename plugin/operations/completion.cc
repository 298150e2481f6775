// SPDX-License-Identifier: Apache-2.0
// How operations end: the parts that proxies report, and when an operation counts as complete.
#include <bit>

#include "plugin/operations/channel_events.h"
#include "plugin/operations/communicator.h"

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
  StoreRelaxed(operation.first_part_ns, 0);
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

// True for one thread only, which then ends the operation.
bool Communicator::TakeDone(Operation& operation, uint64_t ticket) {
  return Exchange(operation.state, PhaseWord(ticket, Phase::kActive), PhaseWord(ticket, Phase::kDone));
}

void Communicator::Finish(Operation& operation, uint64_t ticket, uint64_t now_ns) {
  if (TakeDone(operation, ticket)) RecordDone(operation, ticket, now_ns);
}

// By the thread that has taken it from Active to Done.
void Communicator::RecordDone(Operation& operation, uint64_t ticket, uint64_t now_ns) {
  const uint64_t launch_ticket = LoadRelaxed(operation.launch);
  if (launch_ticket == 0) {
    StoreRelaxed(operation.previous_member, 0);
    return RecordMembers(ticket, 1, nullptr, now_ns);
  }
  Launch& launch = LaunchAt(launch_ticket);
  // Once the launch is closed, only members that are not done change `pending`: the last of them needs no locked
  // instruction.
  const bool is_last = LoadAcquire(launch.pending) == Launch::kDone + 1;
  if (is_last) StoreRelaxed(launch.pending, Launch::kDone);
  if (is_last || launch.pending.fetch_sub(1, std::memory_order_acq_rel) - 1 == Launch::kDone) {
    RecordLaunch(launch, now_ns);
  }
}

// Ends an operation of which no event is expected any more, or can be waited for.
void Communicator::Resolve(Operation& operation, uint64_t ticket, uint64_t now_ns) {
  if (LoadAcquire(operation.state) != PhaseWord(ticket, Phase::kActive)) return;
  const Progress progress = ProgressOf(operation, ticket);
  const bool can_have_none = MayHaveNoParts(operation) && progress == Progress::kNoPart;  // no network
  const bool is_over = progress == Progress::kAllStopped || can_have_none;
  is_over ? Finish(operation, ticket, now_ns) : GiveUp(operation, ticket, now_ns);
}

// What is not over has no interval, and its companions' share of the time is not known. The thread that reports its
// parts may be ending it at this very moment, or be writing them: they are left alone.
void Communicator::GiveUp(Operation& operation, uint64_t ticket, uint64_t now_ns) {
  if (!TakeDone(operation, ticket)) return;
  recorder_.CountLoss(Loss::kOperationAbandoned);
  operation.is_given_up.store(true, std::memory_order_relaxed);
  RecordDone(operation, ticket, now_ns);
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

// Leaves every entry free, for the communicator that will use this place next. What is not complete is not counted as
// such.
void Communicator::Finalize() {
  const uint64_t now_ns = NowNs();
  bool is_all_complete = true;
  for (Operation& operation : operations_) {  // all of them: the oldest may be older than the ring is long
    const uint64_t state = LoadAcquire(operation.state);
    if (PhaseOf(state) != Phase::kActive) continue;
    const uint64_t ticket = TicketOf(state);
    if (!TakeDone(operation, ticket)) continue;
    const Progress progress = ProgressOf(operation, ticket);
    if (progress != Progress::kAllStopped) {
      const bool cannot_be_seen = MayHaveNoParts(operation) && progress == Progress::kNoPart;
      if (!cannot_be_seen) recorder_.CountLoss(Loss::kIncompleteAtFinalize);
      operation.is_given_up.store(progress == Progress::kRunning, std::memory_order_relaxed);
      operation.is_not_recorded.store(true, std::memory_order_relaxed);
      is_all_complete = false;
    }
    RecordDone(operation, ticket, now_ns);
  }
  for (Launch& launch : launches_) {
    if (LoadAcquire(launch.ticket) != 0) Close(launch, now_ns);
  }
  if (const Turn turn{&is_recording_}) {
    ReleaseHeld(HeldTimes::kCapacity);
    DropHeld(CauseOfDoubt());
    if (is_all_complete) CompleteUnfollowed(turn, now_ns);
  }
  ShowDeferredStarts();
  ShowDeferredCompletions();
}

}  // namespace nccl_exporter
