// SPDX-License-Identifier: Apache-2.0
#include "plugin/operations/operation_completer.h"

#include <algorithm>
#include <bit>

namespace nccl_exporter::plugin {
namespace {

// Without an event for so long, no further part is expected.
constexpr uint64_t kQuietNs = 1'000'000'000;
constexpr uint64_t kSweepSteps = 4;  // a bounded piece of work at each event
// Channels are reported independently of each other, but not by so many launches apart.
constexpr uint64_t kLaunchesApart = 64;
// A launch in flight is looked at no more often: it may have as many members as there are entries.
constexpr uint64_t kLookNs = 100'000;

}  // namespace

// Ends an operation of which no event is expected any more, or can be waited for.
void OperationCompleter::Resolve(Operation& operation, uint64_t ticket, uint64_t now_ns) {
  if (LoadAcquire(operation.state) != PhaseWord(ticket, Phase::kActive)) return;
  const Progress progress = ProgressOf(operation, ticket);
  const bool is_over = progress == Progress::kAllStopped || CannotBeSeen(operation, progress);
  is_over ? Finish(operation, ticket, now_ns) : GiveUp(operation, ticket, now_ns);
}

// An operation that is not over has no interval, and the share of its launch's other members is not
// known. The thread that reports its parts may be ending it at this very moment, or be writing
// them: they are left alone.
void OperationCompleter::GiveUp(Operation& operation, uint64_t ticket, uint64_t now_ns) {
  if (!TakeDone(operation, ticket)) return;
  recorder().CountLoss(Loss::kOperationAbandoned);
  StoreRelaxed(operation.is_given_up, true);
  RecordDone(operation, ticket, now_ns);
}

void OperationCompleter::SweepSome(uint64_t now_ns) {
  for (uint64_t step = 0; step < kSweepSteps; ++step) {
    const uint64_t ticket = LoadRelaxed(oldest_);
    if (ticket >= LoadAcquire(latest_)) return;
    Operation& operation = At(ticket);
    if (LoadAcquire(operation.state) == PhaseWord(ticket, Phase::kActive)) {
      if (!IsOvertaken(operation, ticket, now_ns)) return;
      Resolve(operation, ticket, now_ns);
    }
    StoreRelaxed(oldest_, ticket + 1);
  }
}

// Whether a later launch has run or, by proxies, begun, and either has every channel of this
// operation gone over to a later launch, or it has been quiet. The first alone is not enough where
// there are channels, which are reported independently of each other; proxy operations have none.
// Those of a later launch may begin, on connections of their own, while those of this one are
// queued: then they have to be done.
bool OperationCompleter::IsOvertaken(const Operation& operation, uint64_t ticket, uint64_t now_ns) {
  const uint64_t order = OrderOf(operation, ticket);
  if (order >= LoadRelaxed(latest_order_)) return false;
  if (LoadRelaxed(operation.parts_ticket) != ticket)
    return now_ns >= LoadRelaxed(operation.call_ns) + kQuietNs;
  const Progress progress = ProgressOf(operation, ticket);
  if (progress == Progress::kRunning) return false;
  const uint64_t last_ns =
      std::max(LoadRelaxed(operation.call_ns), LoadRelaxed(operation.last_part_ns));
  if (AwaitsProxies(operation, ticket))
    return order < LoadRelaxed(latest_done_order_) && now_ns >= last_ns + kQuietNs;
  if (progress == Progress::kNoPart) return false;
  // Where the number of channels is exact, those that lack may only be late.
  const bool may_lack_channels = !LoadRelaxed(operation.channels_are_exact) ||
                                 LoadRelaxed(latest_order_) >= order + kLaunchesApart;
  return (may_lack_channels && IsTakenOver(operation, order)) || now_ns >= last_ns + kQuietNs;
}

bool OperationCompleter::IsTakenOver(const Operation& operation, uint64_t order) {
  for (uint64_t seen = LoadRelaxed(operation.seen); seen != 0; seen &= seen - 1) {
    if (LoadRelaxed(OwnerOf(operation, static_cast<uint32_t>(std::countr_zero(seen)))) <= order)
      return false;
  }
  return true;
}

void OperationCompleter::Finalize() {
  const uint64_t now_ns = NowNs();
  bool is_all_complete = true;
  // All of them: the oldest may be older than the ring is long.
  for (Operation& operation : operations_) is_all_complete &= FinalizeOperation(operation, now_ns);
  for (Launch& launch : launches_) {
    if (LoadAcquire(launch.ticket) != 0) Close(launch, now_ns);
  }
  LaunchRecorder::Finalize(is_all_complete, now_ns);
}

// False if it was in flight, and is not known to be complete.
bool OperationCompleter::FinalizeOperation(Operation& operation, uint64_t now_ns) {
  const uint64_t state = LoadAcquire(operation.state);
  if (PhaseOf(state) != Phase::kActive) return true;
  const uint64_t ticket = TicketOf(state);
  if (!TakeDone(operation, ticket)) return true;
  const Progress progress = ProgressOf(operation, ticket);
  const bool is_complete = progress == Progress::kAllStopped;
  if (!is_complete) {
    if (!CannotBeSeen(operation, progress)) recorder().CountLoss(Loss::kIncompleteAtFinalize);
    StoreRelaxed(operation.is_given_up, progress == Progress::kRunning);
    StoreRelaxed(operation.is_not_recorded, true);
  }
  RecordDone(operation, ticket, now_ns);
  return is_complete;
}

void OperationCompleter::CloseLaunch(uint64_t ticket) {
  Launch& launch = LaunchAt(ticket);
  if ((LoadAcquire(launch.ticket) & Handle::kTicketMask) != ticket || ticket == 0) {
    return recorder().CountLoss(Loss::kStaleHandle);
  }
  Close(launch, 0);
}

// Each attempt that fails is a member that was done meanwhile, so there are few.
void OperationCompleter::Close(Launch& launch, uint64_t now_ns) {
  const uint64_t change = LoadRelaxed(launch.members) + Launch::kClosed;
  uint64_t pending = LoadRelaxed(launch.pending);
  do {
    if (pending >= Launch::kClosed) return;
  } while (
      !launch.pending.compare_exchange_weak(pending, pending + change, std::memory_order_acq_rel));
  if (pending + change == Launch::kDone) Record(launch, now_ns);
}

bool OperationCompleter::IsFreed(Launch& launch) {
  EndIfOver(launch, NowNs());
  return LoadAcquire(launch.ticket) == 0;
}

// Ends an operation, and those that share its launch, if they are over or later ones are. One that
// is truly in flight keeps its place, for it shows a hang.
bool OperationCompleter::IsFreed(Operation& operation) {
  const uint64_t now_ns = NowNs();
  const uint64_t ticket = TicketOf(LoadAcquire(operation.state));
  const uint64_t launch_ticket = LoadRelaxed(operation.launch);
  Launch& launch = LaunchAt(launch_ticket);
  if (launch_ticket == 0) {
    EndIfOver(operation, ticket, now_ns);
  } else if (LoadAcquire(launch.ticket) == launch_ticket) {
    if (LoadRelaxed(vain_launch_) == launch_ticket && now_ns < LoadRelaxed(vain_ns_) + kLookNs)
      return false;
    EndIfOver(launch, now_ns);
    StoreRelaxed(vain_launch_, launch_ticket);
    StoreRelaxed(vain_ns_, now_ns);
  } else if (CompareExchange(operation.state, PhaseWord(ticket, Phase::kDone),
                             PhaseWord(ticket, Phase::kFree))) {
    recorder().CountLoss(Loss::kOperationAbandoned);  // its launch was recorded without it
  }
  return PhaseOf(LoadAcquire(operation.state)) == Phase::kFree;
}

// The ring has come round to the launch: the thread that opened it will not close it any more.
void OperationCompleter::EndIfOver(Launch& launch, uint64_t now_ns) {
  uint64_t member = LoadRelaxed(launch.last_member);
  for (uint64_t i = 0; i < kOperationEntries && member != 0; ++i) {
    Operation& operation = At(member);
    const uint64_t previous = LoadRelaxed(operation.previous_member);
    EndIfOver(operation, member, now_ns);
    member = previous;
  }
  Close(launch, now_ns);
}

void OperationCompleter::EndIfOver(Operation& operation, uint64_t ticket, uint64_t now_ns) {
  const Progress progress = ProgressOf(operation, ticket);
  const bool a_later_one_is_done = LoadRelaxed(latest_done_order_) > OrderOf(operation, ticket);
  // Where none of the communicator has begun, the network takes none up.
  if (AwaitsProxies(operation, ticket) && LoadRelaxed(latest_) != 0 && !a_later_one_is_done) return;
  // Between two of its channels a running operation looks as if it were over.
  const bool is_over =
      progress == Progress::kAllStopped && !LoadRelaxed(operation.channels_are_exact);
  // By proxies later operations begin while this one runs: sends and receives have connections of
  // their own.
  const bool has_run = source() == TimingSource::kProxy && progress == Progress::kRunning
                           ? a_later_one_is_done
                           : LoadRelaxed(latest_) > ticket;
  if (is_over || CannotBeSeen(operation, progress) || has_run) Resolve(operation, ticket, now_ns);
}

}  // namespace nccl_exporter::plugin
