// SPDX-License-Identifier: Apache-2.0
// Recorder of launches: once all members of a launch are done, counts them, records their times and
// frees their entries. Any thread; each launch is handed over by one thread, once.
//
// One thread at a time judges and records launches (`is_recording_`). A thread that does not get
// the lock, because its holder was interrupted, counts its members without their times, in `late_`.
// They are added to the segment by whichever gets the lock first: this thread, which tries again,
// the holder, which looks there after it has let go, or the next thread that records.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "plugin/operations/communicator_state.h"
#include "plugin/operations/launch_judge.h"
#include "plugin/operations/launch_record.h"
#include "plugin/segment/atomics.h"
#include "plugin/segment/recorder.h"

namespace nccl_exporter::plugin {

class LaunchRecorder : public LaunchJudge {
 public:
  void Open(const CommunicatorSetup& setup);
  // Records what is held and believed, drops the rest. With `completes_unfollowed` those are over,
  // too.
  void Finalize(bool completes_unfollowed, uint64_t now_ns);

  // A launch that is closed and whose members are all done. `now_ns` 0: not read yet.
  void Record(Launch& launch, uint64_t now_ns);
  // An operation that is done and belongs to no launch.
  void RecordAlone(Operation& operation, uint64_t ticket, uint64_t now_ns);

  // An operation was started and is not followed: it is over when one with a higher ticket is.
  // By any thread. The ticket is only raised: a thread that was interrupted has an old one. An
  // attempt fails only if another thread has changed the ticket; after the last one the operation
  // is over with those of the other threads.
  //
  // The count comes before the ticket is read (acquire), and CompleteUnfollowed takes the ticket
  // before the counts: so no count stays behind without a ticket. //tests/memory_order has the
  // model.
  void NoteUnfollowed(Function function, uint64_t latest_ticket) {
    constexpr int kAttempts = 64;
    unfollowed_[static_cast<size_t>(function)].fetch_add(1, std::memory_order_acquire);
    uint64_t until = LoadRelaxed(unfollowed_until_);
    for (int i = 0; i < kAttempts && until < latest_ticket; ++i) {
      if (unfollowed_until_.compare_exchange_strong(until, latest_ticket, std::memory_order_release,
                                                    std::memory_order_relaxed))
        return;
    }
  }

 private:
  void RecordMembers(uint64_t last_member, uint64_t members, const Launch* launch, uint64_t now_ns);
  void RecordUnder(const TryLock& lock, LaunchRecord& record);
  Belief BeliefIn(const TryLock& lock, LaunchRecord& record, uint64_t good);
  void RecordMember(const TryLock& lock, const LaunchRecord& record, const Operation& operation,
                    uint64_t ticket);
  using Counts = std::array<AtomicU64, kFunctionCount>;
  // Under the lock.
  void AddCompleted(Counts& counts, uint64_t now_ns);
  [[gnu::cold]] void AddLate(uint64_t now_ns);
  // Completes the operations that could not be followed up to that ticket, if no later one was
  // noted meanwhile.
  [[gnu::cold]] void CompleteUnfollowed(uint64_t until, uint64_t now_ns);

  alignas(64) std::atomic<bool> is_recording_{false};
  // Ticket: no operation that could not be followed was started later; 0: there is none.
  AtomicU64 unfollowed_until_{0};
  Counts unfollowed_{};
  std::atomic<bool> has_late_{false};
  Counts late_{};
};

}  // namespace nccl_exporter::plugin
