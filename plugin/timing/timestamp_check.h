// SPDX-License-Identifier: Apache-2.0
// Check of the GPU times of launches, one after the other. One thread at a time, under the lock of
// the communicator's completions.
//
// NCCL's counters may drift from the device's, and its rings of time stamps may be overrun when its
// progress thread is late. Then launches carry the times of other ones, in perfect order.
//
// A launch is believed if it keeps to all of these:
// - It took time, on each channel. (stop_before_start)
// - It took no longer than the CPU waited, from its call to the delivery of its last stop.
//   (longer_than_cpu_time)
// - The distance of the two clocks, which every launch bounds (call <= start, stop <= delivery),
//   lies within the bounds that earlier launches gave. (clock_mismatch)
// - It began after the launches before it had ended, for the kernels of a communicator run one
//   after the other. (overlap)
// - All channels of an operation that is alone in its launch ran at the same time at some moment.
//   (disjoint_channels)
// The second, third and fourth are proof of drift, which is permanent: the communicator is untimed
// from then on. The last is not, for the blocks of a kernel may wait for a processor each for
// itself.
//
// Overruns. A channel's ring has 64 entries. An item that is read late may show the times of the
// item 64 behind it, or 128, and so on: later times than its own. So an overrun breaks neither of
// the first two bounds of a clock, and the bounds hold. What follows:
// 1. Times are *own* if they end before the first call was made whose kernel could overwrite them
//    (work_items.h): what overwrites an entry later begins later than they end. The call's CPU time
//    is compared with the latest time on that clock that the stop can have had (delivery - stop
//    bounds the distance).
// 2. Let launch i show the times of a later launch q, and let all launches recorded after i be in
//    order. Then the next item of the channel shows times after q's end, so those of an item behind
//    q; and so on for every item that is read. The first launch whose times are own ends this. So:
//    if the times of a launch are own, and all between it and i are in order, those of i are its
//    own as well, for a thread that is late by any number of rings.
// 3. Times that are not own are held until own ones come (unconfirmed_times.h). They are dropped if
//    times go back before that or if there is no room: nothing is released without 1 or 2.
// 4. Times that go back although those before them were own are no overrun, but proof of drift
//    (overlap).
//
// A host may be 64 calls ahead of its GPU at all times; no times are own then. Released is, too,
// what was held before a row of kPatientLaunches launches of which each was seen to start before it
// ended, had its stop delivered kRunNs after its start, and ended kPatienceNs after the one before
// had been delivered. NCCL's thread polls without pause while anything is to be read. Were it late
// by a ring, it would have had to leave the CPU right after the start of each of these launches,
// until its end, with exactly a whole number of rings left to read: one poll in between gives a
// stop that lies before the start, or times that go back. This is no proof where drift is
// concerned. The launches of the row are not released themselves: a thread that is held up within
// the last of them looks patient too.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "plugin/segment/atomics.h"
#include "plugin/timing/work_items.h"
#include "proto/loss.h"

namespace nccl_exporter::plugin {

// Times of one launch: GPU clock, and CLOCK_MONOTONIC. Tickets are those of operations, which are
// announced, and run, in their order.
struct LaunchTimes {
  uint64_t first_ticket = 0;  // of its operations
  uint64_t last_ticket = 0;
  uint32_t first_item = 0;  // of work that may be its own
  uint64_t start_ns = 0;
  uint64_t stop_ns = 0;
  uint64_t call_ns = 0;  // the launch was not made before; 0: not known
  // When its first start was delivered, at the latest.
  static constexpr uint64_t kNeverSeen = ~uint64_t{0};
  uint64_t started_ns = 0;
  uint64_t delivered_ns = 0;
  // As WorkItems gives it, once the times have been delivered.
  uint64_t overwritable_ns = WorkItems::kNotYet;
  // Earlier operations that are not over ran until then at least, by times of their own; 0: there
  // are none.
  uint64_t earlier_ns = 0;
  bool has_disjoint_channels = false;
  uint64_t items = 1;  // on one channel, at most: they are not compared with each other
  // Operations of the launch, not all of whose channels are in these times.
  uint64_t incomplete = 0;
};

struct Verdict {
  std::optional<Loss> loss;   // why the times are not believed; nothing: they are plausible
  bool refutes_held = false;  // times before these, held back so far, are those of other launches
  bool is_own = false;        // shown by 1
  // Times held back of launches before that ticket are their own; 0: of none.
  uint64_t release_until = 0;
};

// One per communicator.
class TimestampCheck {
 public:
  // Length of the row that shows patience: one chance in 64 for each launch would be much already.
  static constexpr uint64_t kPatientLaunches = 16;
  // Several times, and many times, as long as a poll of NCCL's thread.
  static constexpr uint64_t kRunNs = 10'000;
  static constexpr uint64_t kPatienceNs = 50'000;

  Verdict Judge(const LaunchTimes& launch);
  // Whether times that end then are own. True only if it is certain.
  bool AreOwn(uint64_t stop_ns, uint64_t overwritable_ns) const;
  // Last ticket of the latest launch that was compared with the one before it.
  uint64_t last_ticket() const { return LoadRelaxed(last_ticket_); }
  // A clock was slewed: the distance so far says nothing of the next one.
  void ForgetBounds() { StoreRelaxed(bounds_ns_, uint64_t{0}); }
  void EndPatience() { StoreRelaxed(patient_launches_, 0); }
  // Whether this loss proves drift.
  static constexpr bool IsDrift(Loss loss) { return IsOfClocks(loss) || loss == Loss::kOverlap; }
  // Whether it may come from a slewed clock, too.
  static constexpr bool IsOfClocks(Loss loss) {
    return loss == Loss::kLongerThanCpuTime || loss == Loss::kClockMismatch;
  }
  void Reset() {
    Zero(bounds_ns_, last_ticket_, last_start_ns_, last_stop_ns_, last_delivered_ns_, last_is_own_,
         patient_launches_);
  }

 private:
  std::optional<Loss> JudgeClocks(const LaunchTimes& launch);
  void JudgeInOrder(const LaunchTimes& launch, Verdict& verdict);
  void JudgeLate(const LaunchTimes& launch, Verdict& verdict) const;
  void NotePatience(const LaunchTimes& launch, bool goes_back);
  // The first launch of a row of kPatientLaunches; 0: there is no such row.
  uint64_t FirstPatientLaunch() const;

  // GPU clock + distance = CPU clock: the distance lies between these, as known at bounds_ns_; they
  // widen with time.
  std::atomic<int64_t> least_distance_{0};
  std::atomic<int64_t> most_distance_{0};
  AtomicU64 bounds_ns_{0};  // CLOCK_MONOTONIC; 0: no bounds yet
  // The latest launch.
  AtomicU64 last_ticket_{0};
  AtomicU64 last_start_ns_{0};
  AtomicU64 last_stop_ns_{0};
  AtomicU64 last_delivered_ns_{0};
  AtomicU64 last_is_own_{0};
  AtomicU64 patient_launches_{0};                  // in a row
  std::array<AtomicU64, kPatientLaunches> row_{};  // their tickets, each at its number in the row
};

}  // namespace nccl_exporter::plugin
