// SPDX-License-Identifier: Apache-2.0
#include "plugin/communicator.h"

namespace nccl_exporter {
namespace {

constexpr uint64_t kOneAnnounced = uint64_t{1} << 32;
constexpr uint64_t kOneDone = 1;
constexpr uint64_t kQuietNs = 1'000'000'000;  // without an event for so long, no further part is expected
constexpr uint64_t kSweepSteps = 4;           // a bounded piece of work at each completion
// GPU clocks tick in steps of up to 1 us and drift from the CPU's by parts in a million.
constexpr uint64_t kClockSlackNs = 4096;
constexpr uint64_t kClockDriftDivisor = 1024;

uint64_t Announced(uint64_t parts) { return parts >> 32; }
uint64_t Done(uint64_t parts) { return parts & 0xffffffff; }
bool AllStopped(uint64_t parts) { return parts != 0 && Announced(parts) == Done(parts); }

void Reject(Operation& operation, Loss loss) {
  if (operation.rejection.load(std::memory_order_relaxed) == 0) {
    operation.rejection.store(static_cast<uint8_t>(1 + static_cast<uint8_t>(loss)), std::memory_order_relaxed);
  }
}

}  // namespace

void Communicator::Open(TimingSource source, int rank, uint32_t ranks, layout::CommunicatorSlot* slot,
                        layout::SegmentHeader* header) {
  source_.store(source, std::memory_order_relaxed);
  rank_.store(rank, std::memory_order_relaxed);
  recorder_.Open(slot, header, ranks);
}

// --- Launches
// -----------------------------------------------------------------------------------------------------------

uint64_t Communicator::OpenLaunch() {
  const uint64_t ticket = NextTicket(next_launch_);
  Launch& launch = LaunchAt(ticket);
  if (LoadAcquire(launch.ticket) != 0) return 0;  // its operations hold their entries as well: the ring is full
  StoreRelaxed(launch.members, 0);
  StoreRelaxed(launch.last_member, 0);
  StoreRelaxed(launch.pending, 0);
  StoreRelaxed(launch.closed, 0);
  StoreRelease(launch.ticket, ticket);
  return ticket;
}

void Communicator::CloseLaunch(uint64_t ticket) {
  Launch& launch = LaunchAt(ticket);
  if ((LoadAcquire(launch.ticket) & Handle::kTicketMask) != ticket || ticket == 0) {
    return recorder_.CountLoss(Loss::kStaleHandle);
  }
  Close(launch, 0);
}

void Communicator::Close(Launch& launch, uint64_t now_ns) {
  if (!Exchange(launch.closed, 0, 1)) return;
  const uint64_t members = LoadRelaxed(launch.members);
  if (launch.pending.fetch_add(members, std::memory_order_acq_rel) + members == 0) RecordLaunch(launch, now_ns);
}

void Communicator::JoinLaunch(Operation& operation, uint64_t ticket, uint64_t launch_ticket) {
  StoreRelaxed(operation.launch, 0);
  if (launch_ticket == 0) return;
  Launch& launch = LaunchAt(launch_ticket);
  const uint64_t whole = LoadAcquire(launch.ticket);
  if ((whole & Handle::kTicketMask) != launch_ticket || LoadRelaxed(launch.closed) != 0) return;
  StoreRelaxed(operation.previous_member, LoadRelaxed(launch.last_member));
  StoreRelaxed(launch.last_member, ticket);
  StoreRelaxed(launch.members, LoadRelaxed(launch.members) + 1);
  StoreRelaxed(operation.launch, whole);
}

// --- Starts
// -------------------------------------------------------------------------------------------------------------

uint64_t Communicator::StartOperation(const OperationStart& start) {
  recorder_.CountStart(start.function, start.message_bytes, start.call_ns);
  if (source() == TimingSource::kNone) return 0;
  Sweep(start.call_ns);
  const uint64_t ticket = NextTicket(next_operation_);
  if (!start.launch_is_followed || !TakeEntry(ticket, start)) {
    recorder_.CountLoss(Loss::kInFlightFull);
    return 0;
  }
  if (start.has_no_parts) Finish(At(ticket), ticket, start.call_ns);
  return ticket;
}

bool Communicator::TakeEntry(uint64_t ticket, const OperationStart& start) {
  Operation& operation = At(ticket);
  if (PhaseOf(LoadAcquire(operation.state)) != Phase::kFree) MakeRoom(operation);
  const uint64_t former = LoadAcquire(operation.state);
  if (PhaseOf(former) != Phase::kFree) return false;
  if (!Exchange(operation.state, former, PhaseWord(ticket, Phase::kWriting))) return false;

  StoreRelaxed(operation.call_ns, start.call_ns);
  StoreRelaxed(operation.bytes, start.message_bytes);
  StoreRelaxed(operation.sequence, start.sequence);
  operation.channels.store(start.channels, std::memory_order_relaxed);
  operation.function.store(start.function, std::memory_order_relaxed);
  operation.call_is_bound.store(start.call_is_bound, std::memory_order_relaxed);
  operation.channels_are_exact.store(start.channels_are_exact && source() != TimingSource::kProxy,
                                     std::memory_order_relaxed);
  operation.is_given_up.store(false, std::memory_order_relaxed);
  JoinLaunch(operation, ticket, start.launch);
  recorder_.ShowInFlight(ticket, start);
  StoreRelease(operation.state, PhaseWord(ticket, Phase::kActive));
  return true;
}

// The ring has come round to an operation that is still held: ends it, and those that share its launch, if they are
// over or later ones are. An operation that is truly in flight keeps its place: it is what a hang is told by.
void Communicator::MakeRoom(Operation& operation) {
  const uint64_t now_ns = NowNs();
  const uint64_t state = LoadAcquire(operation.state);
  const uint64_t ticket = TicketOf(state);
  const uint64_t launch_ticket = LoadRelaxed(operation.launch);
  if (launch_ticket == 0) return EndIfOver(operation, ticket, now_ns);
  Launch& launch = LaunchAt(launch_ticket);
  if (LoadAcquire(launch.ticket) != launch_ticket) {  // its launch was recorded without it
    if (Exchange(operation.state, PhaseWord(ticket, Phase::kDone), PhaseWord(ticket, Phase::kFree))) {
      recorder_.CountLoss(Loss::kOperationAbandoned);
    }
    return;
  }
  uint64_t member = LoadRelaxed(launch.last_member);
  for (uint64_t i = 0; i < kOperationEntries && member != 0; ++i) {
    Operation& companion = At(member);
    const uint64_t previous = LoadRelaxed(companion.previous_member);
    EndIfOver(companion, member, now_ns);
    member = previous;
  }
  Close(launch, now_ns);
}

void Communicator::EndIfOver(Operation& operation, uint64_t ticket, uint64_t now_ns) {
  const uint64_t parts = LoadRelaxed(operation.parts_ticket) == ticket ? LoadRelaxed(operation.parts) : 0;
  const bool cannot_be_seen = source() == TimingSource::kProxy && parts == 0;
  if (AllStopped(parts) || cannot_be_seen || LoadRelaxed(latest_) > ticket) Resolve(operation, ticket, now_ns);
}

uint64_t Communicator::Active(uint64_t ticket, Operation** operation) {
  if (ticket == 0) return recorder_.CountLoss(Loss::kUnknownHandle), 0;
  *operation = &At(ticket);
  const uint64_t state = LoadAcquire((*operation)->state);
  if ((TicketOf(state) & Handle::kTicketMask) != ticket) return recorder_.CountLoss(Loss::kStaleHandle), 0;
  if (PhaseOf(state) != Phase::kActive) return recorder_.CountLoss(Loss::kAfterCompletion), 0;
  return TicketOf(state);
}

// --- Parts
// --------------------------------------------------------------------------------------------------------------

void Communicator::BeginParts(Operation& operation, uint64_t ticket) {
  if (LoadRelaxed(operation.parts_ticket) == ticket) return;
  StoreRelaxed(operation.parts, 0);
  StoreRelaxed(operation.seen, 0);
  StoreRelaxed(operation.stamped, 0);
  StoreRelaxed(operation.stopped, 0);
  StoreRelaxed(operation.taken_over, 0);
  StoreRelaxed(operation.first_start_ns, 0);
  StoreRelaxed(operation.last_stop_ns, 0);
  StoreRelaxed(operation.last_part_ns, 0);
  operation.rejection.store(0, std::memory_order_relaxed);
  StoreRelaxed(operation.parts_ticket, ticket);
}

void Communicator::CountPart(Operation& operation, uint64_t ticket, uint64_t change) {
  const uint64_t parts = LoadRelaxed(operation.parts) + change;
  StoreRelaxed(operation.parts, parts);
  recorder_.ShowParts(ticket, parts);
}

bool Communicator::StartChannel(uint64_t abbreviated, uint32_t channel, uint64_t time_ns) {
  Operation* operation = nullptr;
  const uint64_t ticket = Active(abbreviated, &operation);
  if (ticket == 0) return false;
  BeginParts(*operation, ticket);
  const uint64_t bit = uint64_t{1} << channel;
  const uint64_t seen = LoadRelaxed(operation->seen);
  if (seen & bit) return recorder_.CountLoss(Loss::kStaleHandle), false;  // announced twice
  if (time_ns == 0) Reject(*operation, Loss::kZeroTimestamp);

  if (seen == 0 || time_ns < LoadRelaxed(operation->first_start_ns)) StoreRelaxed(operation->first_start_ns, time_ns);
  operation->start_low_ns[channel].store(static_cast<uint32_t>(time_ns), std::memory_order_relaxed);
  StoreRelaxed(operation->seen, seen | bit);
  CountPart(*operation, ticket, kOneAnnounced);

  const uint64_t owner = LoadRelaxed(channel_owner_[channel]);
  if (owner != ticket) {
    StoreRelaxed(channel_owner_[channel], ticket);
    if (owner != 0) TakeOver(At(owner), owner, channel);
  }
  return true;
}

// A later operation has begun on one of this one's channels: nothing more comes on it.
void Communicator::TakeOver(Operation& operation, uint64_t ticket, uint32_t channel) {
  if (LoadAcquire(operation.state) != PhaseWord(ticket, Phase::kActive)) return;
  if (LoadRelaxed(operation.parts_ticket) != ticket) return;
  StoreRelaxed(operation.taken_over, LoadRelaxed(operation.taken_over) | uint64_t{1} << channel);
}

void Communicator::StampChannel(uint64_t abbreviated, uint32_t channel, uint64_t time_ns) {
  Operation* operation = nullptr;
  const uint64_t ticket = Active(abbreviated, &operation);
  if (ticket == 0) return;
  const uint64_t bit = uint64_t{1} << channel;
  if (LoadRelaxed(operation->parts_ticket) != ticket || !(LoadRelaxed(operation->seen) & bit)) {
    return recorder_.CountLoss(Loss::kStopWithoutStart);
  }
  const uint64_t first_ns = LoadRelaxed(operation->first_start_ns);
  const uint32_t low_ns = operation->start_low_ns[channel].load(std::memory_order_relaxed);
  const uint64_t start_ns = first_ns + static_cast<uint32_t>(low_ns - static_cast<uint32_t>(first_ns));
  if (time_ns == 0) Reject(*operation, Loss::kZeroTimestamp);
  if (time_ns < start_ns) Reject(*operation, Loss::kStopBeforeStart);
  if (time_ns > LoadRelaxed(operation->last_stop_ns)) StoreRelaxed(operation->last_stop_ns, time_ns);
  StoreRelaxed(operation->stamped, LoadRelaxed(operation->stamped) | bit);
}

void Communicator::StopChannel(uint64_t abbreviated, uint32_t channel) {
  Operation* operation = nullptr;
  const uint64_t ticket = Active(abbreviated, &operation);
  if (ticket == 0) return;
  const uint64_t bit = uint64_t{1} << channel;
  const uint64_t seen = LoadRelaxed(operation->seen);
  if (LoadRelaxed(operation->parts_ticket) != ticket || !(seen & bit)) {
    return recorder_.CountLoss(Loss::kStopWithoutStart);
  }
  const uint64_t stopped = LoadRelaxed(operation->stopped) | bit;
  if (stopped == LoadRelaxed(operation->stopped)) return recorder_.CountLoss(Loss::kAfterCompletion);
  StoreRelaxed(operation->stopped, stopped);
  CountPart(*operation, ticket, kOneDone);

  const uint64_t done = Done(LoadRelaxed(operation->parts));
  const bool is_last = done == operation->channels.load(std::memory_order_relaxed);
  if (!is_last && stopped != seen) return;
  const uint64_t now_ns = NowNs();
  StoreRelaxed(operation->last_part_ns, now_ns);
  NoteLatest(*operation, ticket);
  if (is_last) {
    Finish(*operation, ticket, now_ns);
  } else {
    recorder_.ShowLastPart(ticket, now_ns);  // perhaps the last one: fewer channels may come than were announced
  }
  Sweep(now_ns);
}

bool Communicator::StartProxy(uint64_t abbreviated) {
  Operation* operation = nullptr;
  const uint64_t ticket = Active(abbreviated, &operation);
  if (ticket == 0) return false;
  const uint64_t now_ns = NowNs();
  BeginParts(*operation, ticket);
  if (LoadRelaxed(operation->parts) == 0 || now_ns < LoadRelaxed(operation->first_start_ns)) {
    StoreRelaxed(operation->first_start_ns, now_ns);
  }
  StoreRelaxed(operation->last_part_ns, now_ns);
  recorder_.ShowLastPart(ticket, now_ns);
  CountPart(*operation, ticket, kOneAnnounced);
  // NCCL hands the proxy operations of a launch over together: now those of every earlier launch have come.
  NoteLatest(*operation, ticket);
  Sweep(now_ns);
  return true;
}

void Communicator::StopProxy(uint64_t abbreviated) {
  Operation* operation = nullptr;
  const uint64_t ticket = Active(abbreviated, &operation);
  if (ticket == 0) return;
  const uint64_t parts = LoadRelaxed(operation->parts);
  if (LoadRelaxed(operation->parts_ticket) != ticket || Done(parts) >= Announced(parts)) {
    return recorder_.CountLoss(Loss::kStopWithoutStart);
  }
  const uint64_t now_ns = NowNs();
  if (now_ns > LoadRelaxed(operation->last_stop_ns)) StoreRelaxed(operation->last_stop_ns, now_ns);
  StoreRelaxed(operation->last_part_ns, now_ns);
  recorder_.ShowLastPart(ticket, now_ns);
  CountPart(*operation, ticket, kOneDone);
  Sweep(now_ns);
}

void Communicator::NoteLatest(const Operation& operation, uint64_t ticket) {
  if (ticket <= LoadRelaxed(latest_)) return;
  StoreRelaxed(latest_, ticket);
  StoreRelaxed(latest_launch_, LoadRelaxed(operation.launch));
}

// --- Completion
// ---------------------------------------------------------------------------------------------------------

void Communicator::Finish(Operation& operation, uint64_t ticket, uint64_t now_ns) {
  if (!Exchange(operation.state, PhaseWord(ticket, Phase::kActive), PhaseWord(ticket, Phase::kDone))) return;
  const uint64_t launch_ticket = LoadRelaxed(operation.launch);
  if (launch_ticket == 0) {
    StoreRelaxed(operation.previous_member, 0);
    return RecordMembers(ticket, 1, now_ns);
  }
  Launch& launch = LaunchAt(launch_ticket);
  if (launch.pending.fetch_sub(1, std::memory_order_acq_rel) - 1 == 0) RecordLaunch(launch, now_ns);
}

// Ends an operation of which no event is expected any more, or can be waited for.
void Communicator::Resolve(Operation& operation, uint64_t ticket, uint64_t now_ns) {
  if (LoadAcquire(operation.state) != PhaseWord(ticket, Phase::kActive)) return;
  const uint64_t parts = LoadRelaxed(operation.parts_ticket) == ticket ? LoadRelaxed(operation.parts) : 0;
  const bool can_have_none = source() == TimingSource::kProxy && parts == 0;  // does not cross the network
  if (!AllStopped(parts) && !can_have_none) {
    recorder_.CountLoss(Loss::kOperationAbandoned);
    BeginParts(operation, ticket);
    StoreRelaxed(operation.parts, 0);  // what is not over has no interval
  }
  Finish(operation, ticket, now_ns);
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

// Whether a later operation of another launch has run all its channels, and either has every channel of this one gone
// over to a later one, or it has been quiet. The first alone is not enough: channels are reported independently of each
// other.
bool Communicator::IsOvertaken(const Operation& operation, uint64_t ticket, uint64_t now_ns) const {
  const uint64_t launch = LoadRelaxed(operation.launch);
  if (launch != 0 && launch == LoadRelaxed(latest_launch_)) return false;
  if (LoadRelaxed(operation.parts_ticket) != ticket) return now_ns >= LoadRelaxed(operation.call_ns) + kQuietNs;
  if (!AllStopped(LoadRelaxed(operation.parts))) return false;
  const uint64_t seen = LoadRelaxed(operation.seen);
  const bool is_taken_over = (LoadRelaxed(operation.taken_over) & seen) == seen;
  return is_taken_over || now_ns >= LoadRelaxed(operation.last_part_ns) + kQuietNs;
}

void Communicator::RecordLaunch(Launch& launch, uint64_t now_ns) {
  if (now_ns == 0) now_ns = NowNs();
  RecordMembers(LoadRelaxed(launch.last_member), LoadRelaxed(launch.members), now_ns);
  StoreRelease(launch.ticket, 0);
}

namespace {

bool HasInterval(const Operation& operation, uint64_t ticket) {
  return LoadRelaxed(operation.parts_ticket) == ticket && AllStopped(LoadRelaxed(operation.parts));
}

// Why the operation's interval cannot be believed, as 1 + Loss; 0 if it can. Clock-free: the GPU cannot have been busy
// for longer than the CPU waited from the call to the delivery of the last stop.
uint8_t JudgeInterval(const Operation& operation, TimingSource source) {
  const uint8_t rejection = operation.rejection.load(std::memory_order_relaxed);
  if (rejection != 0 || source == TimingSource::kProxy) return rejection;
  if (LoadRelaxed(operation.stamped) != LoadRelaxed(operation.seen))
    return 1 + static_cast<uint8_t>(Loss::kZeroTimestamp);
  if (!operation.call_is_bound.load(std::memory_order_relaxed)) return 0;
  const uint64_t gpu_ns = LoadRelaxed(operation.last_stop_ns) - LoadRelaxed(operation.first_start_ns);
  const uint64_t cpu_ns = LoadRelaxed(operation.last_part_ns) - LoadRelaxed(operation.call_ns);
  const bool is_possible = gpu_ns <= cpu_ns + cpu_ns / kClockDriftDivisor + kClockSlackNs;
  return is_possible ? 0 : 1 + static_cast<uint8_t>(Loss::kLongerThanCpuTime);
}

}  // namespace

// Records all members of a launch, whose times depend on each other, and frees their entries.
void Communicator::RecordMembers(uint64_t last_member, uint64_t members, uint64_t now_ns) {
  LaunchShare shares[kLaunchParts];
  uint64_t ticket = last_member;
  for (uint64_t i = 0; i < members && ticket != 0; ++i) {
    Operation& operation = At(ticket);
    LaunchShare& share = shares[static_cast<size_t>(LaunchPartOf(operation.function.load(std::memory_order_relaxed)))];
    if (HasInterval(operation, ticket)) {
      const uint8_t rejection = JudgeInterval(operation, source());
      if (rejection != 0) {
        recorder_.CountLoss(static_cast<Loss>(rejection - 1));
        share.Reject();
      }
      share.Add(LoadRelaxed(operation.first_start_ns), LoadRelaxed(operation.last_stop_ns),
                LoadRelaxed(operation.bytes));
    }
    ticket = LoadRelaxed(operation.previous_member);
  }

  ticket = last_member;
  for (uint64_t i = 0; i < members && ticket != 0; ++i) {
    Operation& operation = At(ticket);
    if (LoadAcquire(operation.state) != PhaseWord(ticket, Phase::kDone)) return;
    const Function function = operation.function.load(std::memory_order_relaxed);
    const LaunchShare& share = shares[static_cast<size_t>(LaunchPartOf(function))];
    if (!operation.is_given_up.load(std::memory_order_relaxed)) RecordMember(operation, ticket, share, members, now_ns);
    recorder_.HideInFlight(ticket);
    const uint64_t previous = LoadRelaxed(operation.previous_member);
    StoreRelease(operation.state, PhaseWord(ticket, Phase::kFree));
    ticket = previous;
  }
}

void Communicator::RecordMember(const Operation& operation, uint64_t ticket, const LaunchShare& share, uint64_t members,
                                uint64_t now_ns) {
  Completion completion;
  completion.function = operation.function.load(std::memory_order_relaxed);
  completion.bytes = LoadRelaxed(operation.bytes);
  completion.members = static_cast<uint32_t>(members);
  completion.sequence = LoadRelaxed(operation.sequence);
  completion.call_ns = LoadRelaxed(operation.call_ns);
  completion.now_ns = now_ns;
  if (HasInterval(operation, ticket)) {
    completion.is_timed = !share.is_rejected();
    completion.duration_ns = share.DurationNs(completion.bytes);
    completion.start_ns = LoadRelaxed(operation.first_start_ns);
    completion.stop_ns = LoadRelaxed(operation.last_stop_ns);
    if (operation.channels_are_exact.load(std::memory_order_relaxed) &&
        Done(LoadRelaxed(operation.parts)) < operation.channels.load(std::memory_order_relaxed)) {
      recorder_.CountLoss(Loss::kChannelsMissing);
    }
  }
  recorder_.Record(completion);
}

// Leaves every entry free, for the communicator that will use this place next. What is not complete is not counted as
// such.
void Communicator::Finalize() {
  const uint64_t now_ns = NowNs();
  for (Operation& operation : operations_) {  // all of them: the oldest may be older than the ring is long
    const uint64_t state = LoadAcquire(operation.state);
    if (PhaseOf(state) != Phase::kActive) continue;
    const uint64_t ticket = TicketOf(state);
    const uint64_t parts = LoadRelaxed(operation.parts_ticket) == ticket ? LoadRelaxed(operation.parts) : 0;
    if (!AllStopped(parts)) {
      const bool cannot_be_seen = source() == TimingSource::kProxy && parts == 0;
      if (!cannot_be_seen) recorder_.CountLoss(Loss::kIncompleteAtFinalize);
      operation.is_given_up.store(true, std::memory_order_relaxed);
    }
    Finish(operation, ticket, now_ns);
  }
  for (Launch& launch : launches_) {
    if (LoadAcquire(launch.ticket) != 0) Close(launch, now_ns);
  }
}

}  // namespace nccl_exporter
