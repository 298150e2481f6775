// SPDX-License-Identifier: Apache-2.0
// Follows the operations of one communicator from their start to their completion, and has each counted once.
//
// Every method but Open and Finalize may be called by any thread at any time; none locks, allocates, or makes a system
// call. No loop waits for another thread. The longest take a step for each member of a launch, for each of
// HeldTimes::kReleaseSteps, or for each of WorkItems::kWaiting calls. Tickets that are passed in come from handles:
// they may name an operation that is gone, which is counted and ignored.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "plugin/operations/drift_cause.h"
#include "plugin/operations/launch_share.h"
#include "plugin/operations/operation.h"
#include "plugin/sampling/sampler.h"
#include "plugin/segment/recorder.h"
#include "plugin/timing/held_times.h"
#include "plugin/timing/plausibility.h"
#include "plugin/timing/work_items.h"
#include "proto/data_quality.h"

namespace nccl_exporter {

class Communicator {
 public:
  // Under the process's lock, while no event can carry the new context yet. With TimingSource::kNone operations are
  // counted and not followed. `ranks` 0: not told. `causes`: of drift, in the release that calls.
  // `times_are_on_probation`: the release is not known, so that kernel times are held until kProbationLaunches launches
  // agree with the CPU's interval.
  void Open(TimingSource source, int rank, uint32_t ranks, layout::CommunicatorSlot* slot,
            layout::SegmentHeader* header, const DriftCauses& causes = {}, bool times_are_on_probation = false);
  // Gives up on what is still in flight, after recording what is complete.
  void Finalize();

  // As Open, and before it, for good: phases of kernels are asked for. Room for those of times that are held.
  void TakePhases(HeldTimes::Phases* room) { held_times_.SetRoomForPhases(room); }
  bool TakesPhases() const { return held_times_.HasRoomForPhases(); }

  Recorder& recorder() { return recorder_; }
  // Of operations that are followed; no further ones are, once the communicator drifts.
  bool FollowsOperations() const {
    return source() != TimingSource::kNone && !is_drifting_.load(std::memory_order_relaxed);
  }
  // NCCL's mask was changed by somebody else: kernel times are not believed from here on.
  void EndKernelTiming() {
    if (ReadsKernels()) BeginDrift(0, DriftCause::kMaskOverride);
  }
  TimingSource source() const { return source_.load(std::memory_order_relaxed); }
  bool ReadsKernels() const { return source() == TimingSource::kKernel || source() == TimingSource::kKernelCpu; }
  void LearnRank(int rank) { rank_.store(rank, std::memory_order_relaxed); }
  int rank() const { return rank_.load(std::memory_order_relaxed); }

  // A group of API calls, by number: told apart only while it is open. `depth`: of its first call, 1 for a call outside
  // of all groups.
  uint64_t NextCallGroup(int depth) {
    const uint64_t number = LoadRelaxed(call_groups_) + 1;
    StoreRelaxed(call_groups_, number);
    work_items_.NoteGroup(depth);
    return number;
  }

  // Launches whose times are shown to be their own, and agree with the CPU's interval, before those of a release that
  // is not known are believed: a whole ring, so that counts that differ by less than a ring have shown.
  static constexpr uint32_t kProbationLaunches = WorkItems::kRingEntries;

  // A call that is made now and not captured, before anything is handed to the GPU.
  void NoteWorkItem(uint64_t now_ns) { work_items_.NoteCall(now_ns); }

  // A call of the API.
  void NoteCall(bool is_captured) { drift_watch_.NoteCall(is_captured); }

  // Sampling. By the process, under its lock, while no event can carry the new context yet; nullptr: none.
  void SetSampler(Sampler* sampler) {
    StoreRelaxed(ended_call_groups_, LoadRelaxed(call_groups_));
    if (sampler != nullptr) StoreRelaxed(changes_at_end_, sampler->changes());
    sampler_.store(sampler, std::memory_order_release);
  }
  Sampler* sampler() const { return sampler_.load(std::memory_order_relaxed); }
  void NoteCallTime(uint64_t now_ns) { StoreRelaxed(last_call_ns_, now_ns); }
  void NoteChanges(const Sampler& sampler) { StoreRelaxed(changes_at_end_, sampler.changes()); }
  // With a sampler: the group of that (abbreviated) number has ended. True if the sampler is due.
  bool EndCallGroup(uint64_t abbreviated) {
    const Sampler* sampler = this->sampler();
    NoteChanges(*sampler);
    StoreRelease(ended_call_groups_, abbreviated);
    return sampler->IsDue(LoadRelaxed(last_call_ns_));
  }
  bool HasOpenCallGroup() const {
    const uint64_t ended = LoadAcquire(ended_call_groups_);
    return ((LoadRelaxed(call_groups_) ^ ended) & Handle::kTicketMask) != 0;
  }
  // What the sampler's changes() were when the latest group ended, or at init.
  uint64_t changes_at_end() const { return LoadRelaxed(changes_at_end_); }

  // A launch: returns its ticket, or 0 when its operations cannot be followed.
  uint64_t OpenLaunch();
  void CloseLaunch(uint64_t ticket);

  // Counts the operation; returns its ticket, or 0 when it is not followed.
  uint64_t StartOperation(const OperationStart& start);

  // Kernel channels (channel_events.h). `time_ns` is the GPU's, or CLOCK_MONOTONIC with TimingSource::kKernelCpu.
  bool StartChannel(uint64_t ticket, uint32_t channel, uint64_t time_ns);
  void StampChannel(uint64_t ticket, uint32_t channel, uint64_t time_ns);
  void StopChannel(uint64_t ticket, uint32_t channel);

  // Phases of a kernel, between the start and the stop of their channel: where they are asked for.
  [[gnu::cold]] bool StartPhase(uint64_t ticket, uint32_t channel, uint32_t phase, uint64_t time_ns);
  [[gnu::cold]] void StopPhase(uint64_t ticket, uint64_t time_ns);

  // Proxy operations.
  bool StartProxy(uint64_t ticket);
  void StopProxy(uint64_t ticket);

 private:
  friend class CommunicatorPeer;  // of the test: a thread between two steps

  Operation& At(uint64_t ticket) { return operations_[ticket % kOperationEntries]; }
  Launch& LaunchAt(uint64_t ticket) { return launches_[ticket % kLaunchEntries]; }
  // The operation that last reported on a channel, by its order: NCCL completes a channel's operations in order,
  // receives apart from everything else.
  Word& OwnerOf(const Operation& operation, uint32_t channel) {
    return channel_owners_[operation.owner_lane.load(std::memory_order_relaxed) + channel];
  }
  // Whether nothing may ever be reported on an operation, because it does not cross the network.
  bool MayHaveNoParts(const Operation& operation) const {
    return source() == TimingSource::kProxy || operation.is_untimed.load(std::memory_order_relaxed);
  }
  // Counts why a handle does not name an active operation.
  void CountStray(uint64_t state, uint64_t abbreviated);

  // From here on the counters drift: neither the launch nor anything after it is timed. Launches before it are. The
  // first cause is shown.
  [[gnu::cold]] void BeginDrift(uint64_t launch_ticket, DriftCause cause);
  // Untimes all of an open launch; the first loss decides.
  void RejectLaunch(uint64_t launch_ticket, Loss loss);

  uint64_t TakeEntry(const OperationStart& start, uint32_t first_item);
  // What was deferred shows with the end of the turn that was in the way, or at once if that has ended meanwhile.
  // Again if more was deferred during the turn that showed it; whoever is in the way looks after its own end.
  [[gnu::cold]] void ShowDeferredStarts() {
    while (recorder_.HasDeferredStarts()) {
      const Turn turn{&is_starting_};
      if (!turn) return;
      recorder_.ShowDeferredStarts(turn);
    }
  }
  [[gnu::cold]] void ShowDeferredCompletions() {
    while (recorder_.HasDeferredCompletions()) {
      const Turn turn{&is_recording_};
      if (!turn) return;
      recorder_.ShowDeferredCompletions(turn);
    }
  }
  [[gnu::cold]] void NoteUnfollowed(const OperationStart& start, bool is_followed, bool had_turn);
  uint32_t NoteItem(const OperationStart& start);
  uint64_t NotBefore(const OperationStart& start);
  // The ring has come round to an entry that is still held: frees it if that is over. False if the ring is full.
  [[gnu::cold]] bool IsFreed(Operation& operation);
  [[gnu::cold]] bool IsFreed(Launch& launch);
  void MakeRoom(Operation& operation);
  void EndIfOver(Operation& operation, uint64_t ticket, uint64_t now_ns);
  void EndIfOver(Launch& launch, uint64_t now_ns);
  void JoinLaunch(Operation& operation, uint64_t ticket, uint64_t launch_ticket);
  void BeginParts(Operation& operation, uint64_t ticket);
  void CountPart(Operation& operation, uint64_t ticket, uint64_t change, uint64_t now_ns);
  void EndChannels(Operation& operation, uint64_t ticket);
  void NoteLatest(const Operation& operation, uint64_t ticket);

  void Finish(Operation& operation, uint64_t ticket, uint64_t now_ns);
  void Resolve(Operation& operation, uint64_t ticket, uint64_t now_ns);
  bool TakeDone(Operation& operation, uint64_t ticket);
  void GiveUp(Operation& operation, uint64_t ticket, uint64_t now_ns);
  void RecordDone(Operation& operation, uint64_t ticket, uint64_t now_ns);
  void Sweep(uint64_t now_ns);
  bool IsOvertaken(const Operation& operation, uint64_t ticket, uint64_t now_ns);
  bool IsTakenOver(const Operation& operation, uint64_t order);
  void Close(Launch& launch, uint64_t now_ns);
  void RecordLaunch(Launch& launch, uint64_t now_ns);
  void RecordMembers(uint64_t last_member, uint64_t members, const Launch* launch, uint64_t now_ns);
  struct LaunchRecord;
  void RecordInTurn(const Turn& turn, LaunchRecord& record);
  void RecordMember(const Turn& turn, const LaunchRecord& record, const Operation& operation, uint64_t ticket);
  // What all members say of the times of their launch.
  void GatherTimes(LaunchRecord& record);
  void Gather(LaunchRecord& record, const Operation& operation, uint64_t ticket);
  uint64_t MostItemsOnAChannel(const LaunchRecord& record);
  // Of an operation that is complete; nothing if it has none, or none that fit.
  [[gnu::cold]] std::optional<PhaseTimes> PhasesOf(const Operation& operation, uint64_t ticket);
  // Operations that could not be followed are over when a later one is.
  [[gnu::cold]] void CompleteUnfollowed(const Turn& turn, uint64_t now_ns);

  // Whether the times of a launch are recorded: at once, when later ones agree with them, or not at all.
  enum class Belief : uint8_t { kNo, kLater, kYes };
  uint64_t CountGood(const LaunchRecord& record);
  // `good`: members with good time stamps, which are counted if they are not believed.
  Belief BeliefIn(const Turn& turn, LaunchRecord& record, uint64_t good);
  Belief Judge(LaunchRecord& record, uint64_t good);
  // With the launches before it; notes those in between.
  Verdict Compare(const LaunchTimes& launch);
  uint64_t EarlierInFlightNs(uint64_t ticket);
  [[gnu::cold]] void BeginContradiction();

  // Of a release that is not known.
  bool IsOnProbation() const { return probation_left_.load(std::memory_order_relaxed) != 0; }
  // A launch has shown that its times are its own, and agree with the CPU's interval.
  void AdvanceProbation();

  void Hold(const LaunchRecord& record, const Completion& completion);
  void ReleaseHeld(uint64_t most);
  void DropHeld(Loss loss) {
    if (const uint64_t dropped = held_times_.Drop(); dropped != 0) recorder_.CountLosses(loss, dropped);
  }
  // Why times are dropped that were not shown to be their own.
  Loss CauseOfDoubt() const { return IsOnProbation() ? Loss::kUnproven : Loss::kRingOverrun; }

  std::atomic<TimingSource> source_{TimingSource::kNone};
  std::atomic<bool> reads_gpu_clock_{false};
  std::atomic<bool> is_drifting_{false};      // untimed for good, from some operation on
  std::atomic<bool> is_contradicted_{false};  // so that what is still in flight is not believed either
  DriftWatch drift_watch_;
  Plausibility plausibility_;
  HeldTimes held_times_;
  std::atomic<uint32_t> probation_left_{0};  // launches
  std::atomic<bool> dates_starts_{false};    // the host is so far ahead that the pauses of NCCL's thread count
  WorkItems work_items_;
  Word uncompared_items_{0};  // of work whose times were not compared with those of the launches around it
  std::atomic<int> rank_{-1};
  Recorder recorder_;
  // One thread at a time starts an operation: counts it, takes the next ticket and writes the entry.
  alignas(64) std::atomic<bool> is_starting_{false};
  Word next_operation_{0};  // tickets given out so far
  Word next_launch_{0};
  Word call_groups_{0};
  Word ended_call_groups_{0};  // the latest, abbreviated as in handles
  Word last_call_ns_{0};
  Word changes_at_end_{0};
  std::atomic<Sampler*> sampler_{nullptr};
  Word announced_ns_{0};  // CLOCK_MONOTONIC of the latest operation's start event
  Word oldest_{1};        // no followed operation has a lower ticket
  // One thread at a time judges and records launches.
  alignas(64) std::atomic<bool> is_recording_{false};
  // The highest ticket among operations that have run all channels seen of them, or have begun a proxy operation; and
  // its order.
  Word latest_{0};
  Word latest_order_{0};
  Word unfollowed_until_{0};  // ticket: no operation that could not be followed was started later; 0: there is none
  std::array<Word, kFunctionCount> unfollowed_{};
  std::array<Word, 2 * Handle::kMaxChannels> channel_owners_{};
  std::array<Operation, kOperationEntries> operations_;
  std::array<Launch, kLaunchEntries> launches_;
};

}  // namespace nccl_exporter
