// SPDX-License-Identifier: Apache-2.0
// Thresholds, durations, shares and counts by which the daemon judges. The shipped values are those
// of deploy/prometheus/thresholds.json. A site's own values are read from a file that
// `generate-rules` writes. Plain data, for any thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>

#include "exporter/ledger/ledger_times.h"
#include "exporter/ledger/node_history.h"
#include "exporter/ledger/shipped_thresholds.h"

namespace nccl_exporter::exporter {

// Members have the names of the keys in the file, unless they say otherwise.
struct Thresholds {
  using Ns = std::chrono::nanoseconds;

  // Time between two judgements of late ranks, and between two evaluations of the rules.
  Ns interval = shipped::kInterval;
  // Time between two snapshots that a judge takes into its history. Not in the file.
  Ns step = kHistoryStep;
  // As LedgerTimes::quiet_ns. Not in the file.
  Ns quiet = Ns(LedgerTimes().quiet_ns);

  // A rank hangs if nothing has moved on its communicator for this time.
  Ns hang_threshold = shipped::kHangThreshold;
  // A hang holds for this time before it is an alert: the rules follow a communicator once it is
  // quiet, and find its hang in two evaluations.
  Ns held() const { return quiet + interval; }
  // A rank is shown to wait, as a warning, after this time. Saving a checkpoint takes longer.
  Ns wait() const { return hang_threshold / 4; }
  // A hang is critical from here on where its cause may go on by itself, such as a rank that saves
  // a checkpoint. PyTorch ends a job whose NCCL operation lasts this long.
  Ns critical_threshold = shipped::kCriticalThreshold;
  // Evaluations of the rules in which others wait for a dead or stopped rank.
  int halted_evaluations = shipped::kHaltedEvaluations;
  // Others wait for a dead or stopped rank if nothing has moved for this time. A rank that only
  // calls late is neither.
  Ns halted() const { return (halted_evaluations - 1) * interval; }

  // A rank goes on without a communicator if its process makes progress this long after the
  // communicator stood still. A victim of a hang stops sooner.
  Ns went_on() const { return hang_threshold / 2; }
  // Multiples of hang_threshold that such a process may pause.
  int abandoned_hangs = shipped::kAbandonedHangs;
  // A rank has gone on without a communicator although its process pauses for this time: the
  // time-out of NCCL's watchdog in PyTorch.
  Ns abandoned_for() const { return abandoned_hangs * hang_threshold; }

  // Rates of late ranks are over this time, shares of arrivals over twice that.
  Ns window = shipped::kWindow;
  Ns arrivals_window() const { return 2 * window; }
  // Losses are counted over this time (key `bandwidth-window`).
  Ns losses_window = shipped::kBandwidthWindow;
  // An alert fires after this time.
  Ns hold = shipped::kHold;
  // Judgements of this time say whether a rank is late.
  Ns late_for() const { return 2 * hold; }
  // A late rank is shown for this time after the last judgement that found it.
  Ns shown_for() const { return 3 * hold; }
  // A late rank is late in so many judgements of late_for().
  int late_judgements() const { return static_cast<int>(hold / interval); }
  // A late rank is late in three quarters of the judgements of this time in which any rank was.
  Ns history = shipped::kHistory;
  // No rank is late before its process has been followed for this time.
  Ns warm_up = shipped::kWarmUp;
  // Collectives that are rarer than this are not part of every step.
  Ns longest_step = shipped::kLongestStep;

  // Share of the time that others must wait for a late rank.
  double straggler_threshold = shipped::kStragglerThreshold;
  // Share of the time below which waits are jitter.
  double least_wait = shipped::kLeastWait;
  // Share of the compared operations that a late rank was the last to enter.
  double last_arrival_share = shipped::kLastArrivalShare;
  // Least number of compared operations in a window, so that one alone makes nobody late.
  int least_operations = shipped::kLeastOperations;

  // Share of the operations above which those that are not followed matter.
  double lost_share = shipped::kLostShare;

  // A signal of the host departs from the job's median if it is higher by suspect_share of the time
  // (waits) or by suspect_faults in a second, and the median is less than suspect_median of it.
  double suspect_share = shipped::kSuspectShare;
  double suspect_median = shipped::kSuspectMedian;
  int suspect_faults = shipped::kSuspectFaults;

  // All durations are divided by `divisor`, which is at least 1, as by `generate-rules
  // --time-scale`: for tests that cannot wait for minutes. Counts of judgements stay.
  Thresholds Scaled(double divisor) const;
};

// The shipped thresholds, changed by the JSON file `path`. Throws std::runtime_error with the path
// and the key if the file cannot be read, a key is not known, or a value is of the wrong kind or
// out of its range.
Thresholds ReadThresholds(const std::string& path);

inline double Seconds(Thresholds::Ns time) { return std::chrono::duration<double>(time).count(); }

// Snapshots in a row in which a rank was dead or stopped while others waited for it. Shorter stops,
// by a debugger or while a job is resumed process by process, are not found.
inline constexpr uint32_t kHaltedSnapshots = 3;

}  // namespace nccl_exporter::exporter
