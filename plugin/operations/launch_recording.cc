// SPDX-License-Identifier: Apache-2.0
// How a launch whose members are all done is judged and recorded.
#include <algorithm>
#include <optional>

#include "plugin/operations/communicator.h"

namespace nccl_exporter {

// A launch that is being recorded.
struct Communicator::LaunchRecord {
  LaunchRecord(uint64_t last_ticket, uint64_t count, const Launch* of_launch, uint64_t at_ns)
      : last_member(last_ticket), members(count), launch(of_launch), now_ns(at_ns) {}

  // A launch has up to three parts; one of a single operation has one, and nothing to tell apart.
  int parts() const { return members == 1 ? 1 : kLaunchParts; }
  size_t PartOf(const Operation& operation) const {
    if (members == 1) return 0;
    return static_cast<size_t>(LaunchPartOf(operation.function.load(std::memory_order_relaxed)));
  }
  LaunchShare& ShareOf(const Operation& operation) { return shares[PartOf(operation)]; }
  const LaunchShare& ShareOf(const Operation& operation) const { return shares[PartOf(operation)]; }
  // Operations without parts of their own are timed if the one that carries them is.
  void CarryTimes() {
    if (carried == 0) return;
    LaunchShare& share = shares[members == 1 ? 0 : static_cast<size_t>(LaunchPart::kCollectives)];
    share.has_interval() ? share.CountGood(carried) : share.Reject();
  }

  uint64_t last_member;  // ticket
  uint64_t members;
  const Launch* launch;  // nullptr: an operation that belongs to none
  uint64_t now_ns;
  LaunchTimes times{.start_ns = ~uint64_t{0}};
  LaunchShare shares[kLaunchParts];  // by part
  uint64_t carried = 0;              // operations without parts of their own
  Belief belief = Belief::kNo;
  uint64_t uncompared_before = 0;  // what uncompared_items_ was when the first item of the launch ran
};

void Communicator::RecordLaunch(Launch& launch, uint64_t now_ns) {
  if (now_ns == 0) now_ns = NowNs();
  RecordMembers(LoadRelaxed(launch.last_member), LoadRelaxed(launch.members), &launch, now_ns);
  StoreRelease(launch.ticket, 0);
}

namespace {

// Proxy operations beside kernel timing tell when an operation is over, not how long it took.
bool HasInterval(const Operation& operation, uint64_t ticket, TimingSource source) {
  if (operation.is_given_up.load(std::memory_order_relaxed)) return false;
  return ProgressOf(operation, ticket) == Progress::kAllStopped &&
         (source == TimingSource::kProxy || LoadRelaxed(operation.seen) != 0);
}

bool LacksChannels(const Operation& operation) {
  return operation.channels_are_exact.load(std::memory_order_relaxed) &&
         operation.lacks_channels.load(std::memory_order_relaxed);
}

// Why the operation's own time stamps cannot be believed, as 1 + Loss; 0 if they can.
uint8_t RejectionOf(const Operation& operation, TimingSource source) {
  const uint8_t rejection = operation.rejection.load(std::memory_order_relaxed);
  const bool lacks_stamp =
      source != TimingSource::kProxy && LoadRelaxed(operation.stamped) != LoadRelaxed(operation.seen);
  if (rejection != 0) return rejection;
  if (lacks_stamp) return 1 + static_cast<uint8_t>(Loss::kStopStampMissing);
  // The channels that lack may have begun earlier, or ended later.
  return LacksChannels(operation) ? 1 + static_cast<uint8_t>(Loss::kChannelsMissing) : 0;
}

void Cover(LaunchTimes& launch, const Operation& operation) {
  launch.start_ns = std::min(launch.start_ns, LoadRelaxed(operation.first_start_ns));
  launch.stop_ns = std::max(launch.stop_ns, LoadRelaxed(operation.last_stop_ns));
  const uint64_t first_part_ns = LoadRelaxed(operation.first_part_ns);
  launch.started_ns = first_part_ns == 0 ? LaunchTimes::kNeverSeen : std::max(launch.started_ns, first_part_ns);
  launch.delivered_ns = std::max(launch.delivered_ns, LoadRelaxed(operation.last_part_ns));
  if (operation.call_is_bound.load(std::memory_order_relaxed)) {
    launch.call_ns = std::max(launch.call_ns, LoadRelaxed(operation.call_ns));
  }
}

// How many of the operations that were added ran on one channel, at most: a counter for each channel, a bit of all
// counters in each word.
class MostOnAChannel {
 public:
  void Add(uint64_t channels) {
    for (uint64_t& bit : bits_) {
      const uint64_t carry = bit & channels;
      bit ^= channels;
      channels = carry;
    }
    overflown_ |= channels;
  }
  uint64_t Count() const {
    if (overflown_ != 0) return uint64_t{1} << kBits;
    uint64_t count = 0;
    uint64_t most = ~uint64_t{0};  // the channels that have the most, as far as it is seen
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

// Whether a channel had stopped before another one started.
bool HasDisjointChannels(const Operation& operation) {
  return LoadRelaxed(operation.soonest_stop_ns) < LoadRelaxed(operation.latest_start_ns);
}

}  // namespace

// Members.

// What is wrong with a member's own time stamps is counted here.
void Communicator::Gather(LaunchRecord& record, const Operation& operation, uint64_t ticket) {
  LaunchShare& share = record.ShareOf(operation);
  bool is_covered = false;
  if (HasInterval(operation, ticket, source())) {
    const uint8_t rejection = RejectionOf(operation, source());
    is_covered = rejection == 0;
    if (is_covered) {
      share.CountGood();
      Cover(record.times, operation);
      record.times.has_disjoint_channels = record.members == 1 && HasDisjointChannels(operation);
    } else {
      recorder_.CountLoss(static_cast<Loss>(rejection - 1));
      share.Reject();
    }
    share.Add(LoadRelaxed(operation.first_start_ns), LoadRelaxed(operation.last_stop_ns), LoadRelaxed(operation.bytes));
  } else if (operation.is_carried.load(std::memory_order_relaxed)) {
    share.AddCarried(LoadRelaxed(operation.bytes));
    ++record.carried;
    is_covered = true;
  } else if (operation.is_given_up.load(std::memory_order_relaxed)) {
    share.Reject();
  }
  if (!is_covered) ++record.times.incomplete;
  record.times.first_ticket = ticket;
  const uint32_t item = operation.first_item.load(std::memory_order_relaxed);
  if (static_cast<int32_t>(item - record.times.first_item) < 0) record.times.first_item = item;
}

void Communicator::GatherTimes(LaunchRecord& record) {
  record.times.last_ticket = record.last_member;
  record.times.first_item = At(record.last_member).first_item.load(std::memory_order_relaxed);
  if (record.launch != nullptr) record.times.call_ns = LoadRelaxed(record.launch->called_after);
  uint64_t ticket = record.last_member;
  for (uint64_t i = 0; i < record.members && ticket != 0; ++i) {
    const Operation& operation = At(ticket);
    Gather(record, operation, ticket);
    ticket = LoadRelaxed(operation.previous_member);
  }
  if (record.members > 1) record.times.items = MostItemsOnAChannel(record);
  record.CarryTimes();
}

// Of a launch of several operations.
uint64_t Communicator::MostItemsOnAChannel(const LaunchRecord& record) {
  MostOnAChannel items;
  uint64_t ticket = record.last_member;
  for (uint64_t i = 0; i < record.members && ticket != 0; ++i) {
    const Operation& operation = At(ticket);
    if (HasInterval(operation, ticket, source())) items.Add(LoadRelaxed(operation.seen));
    ticket = LoadRelaxed(operation.previous_member);
  }
  return items.Count();
}

// Belief.

// Members with good time stamps of their own, in parts of the launch that are timed; in the others they are companions.
uint64_t Communicator::CountGood(const LaunchRecord& record) {
  uint64_t good = 0;
  for (int part = 0; part < record.parts(); ++part) {
    const LaunchShare& share = record.shares[part];
    if (!share.is_rejected()) {
      good += share.good();
    } else if (share.good() != 0) {
      recorder_.CountLosses(Loss::kCompanion, share.good());
    }
  }
  return good;
}

Communicator::Belief Communicator::BeliefIn(const Turn& turn, LaunchRecord& record, uint64_t good) {
  const uint64_t rejection = record.launch != nullptr ? LoadRelaxed(record.launch->rejection) : 0;
  if (rejection != 0) return recorder_.CountLosses(static_cast<Loss>(rejection - 1), good), Belief::kNo;
  if (!turn) return recorder_.CountLosses(Loss::kJudgedAtOnce, good), Belief::kNo;
  if (!reads_gpu_clock_.load(std::memory_order_relaxed)) return Belief::kYes;
  record.times.overwritable_ns = work_items_.OverwritableSince(record.times.first_item);
  record.times.earlier_ns = EarlierInFlightNs(record.times.first_ticket);
  return Judge(record, good);
}

Communicator::Belief Communicator::Judge(LaunchRecord& record, uint64_t good) {
  const Verdict verdict = Compare(record.times);
  if (verdict.refutes_held) DropHeld(Loss::kRingOverrun);
  if (verdict.loss) {
    recorder_.CountLosses(*verdict.loss, good);
    if (Plausibility::IsDrift(*verdict.loss)) BeginContradiction();
    return Belief::kNo;
  }
  dates_starts_.store(!verdict.is_own, std::memory_order_relaxed);  // for patience, which counts only then
  record.uncompared_before = LoadRelaxed(uncompared_items_) + 1 - record.times.items;
  if (verdict.is_own) AdvanceProbation();
  if (IsOnProbation()) return Belief::kLater;
  if (!held_times_.IsEmpty()) held_times_.Believe(verdict.release_until, LoadRelaxed(uncompared_items_));
  return verdict.is_own ? Belief::kYes : Belief::kLater;
}

Verdict Communicator::Compare(const LaunchTimes& launch) {
  if (is_contradicted_.load(std::memory_order_relaxed)) return {.loss = Loss::kDrift};
  const uint64_t before = plausibility_.last_ticket();
  const Verdict verdict = plausibility_.Judge(launch);
  // In their place among the launches that are compared: those that lie between these two, and were not followed, not
  // timed, or are not over yet.
  if (plausibility_.last_ticket() != before && launch.first_ticket > before) {
    const uint64_t uncompared = launch.first_ticket - before - 1 + launch.incomplete;
    if (uncompared != 0) AddRelaxed(uncompared_items_, uncompared);
  }
  return verdict;
}

void Communicator::BeginContradiction() {
  is_contradicted_.store(true, std::memory_order_relaxed);
  DropHeld(Loss::kDrift);
  BeginDrift(0, DriftCause::kContradiction);
}

void Communicator::AdvanceProbation() {
  const uint32_t left = probation_left_.load(std::memory_order_relaxed);
  if (left == 0) return;
  probation_left_.store(left - 1, std::memory_order_relaxed);
  recorder_.ShowProbation(left - 1);
}

// Until when operations announced before that one, and not over yet, ran at least, by times that are their own; 0 if
// there are none. Only as many as may be in flight by their channels' being reported independently of each other: the
// others have been recorded.
uint64_t Communicator::EarlierInFlightNs(uint64_t ticket) {
  constexpr uint64_t kMostSteps = 16;
  const uint64_t oldest = std::max(LoadRelaxed(oldest_), ticket - std::min(ticket, kMostSteps));
  uint64_t latest_ns = 0;
  while (ticket-- > oldest) {
    const Operation& operation = At(ticket);
    if (LoadAcquire(operation.state) != PhaseWord(ticket, Phase::kActive)) continue;
    if (LoadRelaxed(operation.parts_ticket) != ticket || LoadRelaxed(operation.seen) == 0) continue;
    const uint64_t until_ns = std::max(LoadRelaxed(operation.first_start_ns), LoadRelaxed(operation.last_stop_ns));
    const uint32_t first_item = operation.first_item.load(std::memory_order_relaxed);
    if (!plausibility_.AreOwn(until_ns, work_items_.OverwritableSince(first_item))) continue;
    latest_ns = std::max(latest_ns, until_ns);
  }
  return latest_ns;
}

// Held times.

void Communicator::Hold(const LaunchRecord& record, const Completion& completion) {
  const uint64_t dropped = held_times_.MakeRoom(recorder_);
  if (dropped != 0) recorder_.CountLosses(CauseOfDoubt(), dropped);
  held_times_.Keep(record.last_member, completion, record.uncompared_before);
}

void Communicator::ReleaseHeld(uint64_t most) {
  const uint64_t dropped = held_times_.Release(recorder_, most);
  if (dropped != 0) recorder_.CountLosses(Loss::kRingOverrun, dropped);
}

// Recording.

// Records all members of a launch, whose times depend on each other, and frees their entries.
[[gnu::flatten]] void Communicator::RecordMembers(uint64_t last_member, uint64_t members, const Launch* launch,
                                                  uint64_t now_ns) {
  LaunchRecord record(last_member, members, launch, now_ns);
  {
    const Turn turn{&is_recording_};
    RecordInTurn(turn, record);
    const uint64_t unfollowed_until = LoadAcquire(unfollowed_until_);
    if (unfollowed_until != 0 && last_member > unfollowed_until) CompleteUnfollowed(turn, now_ns);
  }
  if (recorder_.HasDeferredCompletions()) ShowDeferredCompletions();
}

// Every member that has stopped and is not timed is counted once: by what is wrong with its own time stamps, with those
// of its launch, or else as a companion.
void Communicator::RecordInTurn(const Turn& turn, LaunchRecord& record) {
  GatherTimes(record);
  const uint64_t good = CountGood(record);
  if (good != 0) record.belief = BeliefIn(turn, record, good);
  if (record.belief == Belief::kNo && turn) plausibility_.EndPatience();
  if (turn && !held_times_.IsEmpty()) ReleaseHeld(HeldTimes::kReleaseSteps);
  uint64_t ticket = record.last_member;
  for (uint64_t i = 0; i < record.members && ticket != 0; ++i) {
    Operation& operation = At(ticket);
    if (LoadAcquire(operation.state) != PhaseWord(ticket, Phase::kDone)) return;
    if (!operation.is_not_recorded.load(std::memory_order_relaxed)) RecordMember(turn, record, operation, ticket);
    recorder_.HideInFlight(ticket);
    const uint64_t previous = LoadRelaxed(operation.previous_member);
    StoreRelease(operation.state, PhaseWord(ticket, Phase::kFree));
    ticket = previous;
  }
}

void Communicator::RecordMember(const Turn& turn, const LaunchRecord& record, const Operation& operation,
                                uint64_t ticket) {
  const Function function = operation.function.load(std::memory_order_relaxed);
  const LaunchShare& share = record.ShareOf(operation);
  const bool is_carried = operation.is_carried.load(std::memory_order_relaxed) && share.has_interval();
  const bool is_timed = record.belief != Belief::kNo && !share.is_rejected();
  if (is_timed && (is_carried || HasInterval(operation, ticket, source()))) {
    const uint64_t bytes = LoadRelaxed(operation.bytes);
    Completion completion{.function = function,
                          .members = static_cast<uint32_t>(record.members),
                          .bytes = bytes,
                          .duration_ns = share.DurationNs(bytes),
                          .sequence = LoadRelaxed(operation.sequence),
                          .call_ns = LoadRelaxed(operation.call_ns),
                          .start_ns = is_carried ? share.start_ns() : LoadRelaxed(operation.first_start_ns),
                          .stop_ns = is_carried ? share.stop_ns() : LoadRelaxed(operation.last_stop_ns),
                          .now_ns = record.now_ns};
    std::optional<PhaseTimes> phases;
    if (!is_carried && TakesPhases()) phases = PhasesOf(operation, ticket);
    if (phases) completion.phases = &*phases;
    record.belief == Belief::kLater ? Hold(record, completion) : recorder_.RecordTimes(completion);
  }
  recorder_.CountCompleted(turn, function, record.now_ns);
}

void Communicator::CompleteUnfollowed(const Turn& turn, uint64_t now_ns) {
  StoreRelaxed(unfollowed_until_, 0);
  for (size_t function = 0; function < kFunctionCount; ++function) {
    const uint64_t count = unfollowed_[function].exchange(0, std::memory_order_relaxed);
    if (count != 0) recorder_.CountCompleted(turn, static_cast<Function>(function), now_ns, count);
  }
}

}  // namespace nccl_exporter
