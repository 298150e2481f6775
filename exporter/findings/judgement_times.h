// SPDX-License-Identifier: Apache-2.0
// Durations and thresholds of the judgement: those of the alert rules. A test compares them with
// deploy/prometheus/generate-rules.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "exporter/ledger/node_history.h"

namespace nccl_exporter::exporter {

// All of them may be divided by one number, as by `generate-rules --time-scale`, for tests that
// cannot wait for minutes.
struct JudgementTimes {
  using Ns = std::chrono::nanoseconds;

  // A rank hangs if nothing has moved on its communicator for so long (--hang-threshold).
  Ns hang = std::chrono::minutes(2);
  // It is shown to wait, as a warning, after so long: a quarter. Saving a checkpoint takes longer.
  Ns wait() const { return hang / 4; }
  // A hang is critical from here on where its cause may go on by itself, such as a rank that saves
  // a checkpoint (--critical-threshold). PyTorch ends a job whose NCCL operation lasts this long.
  Ns critical = std::chrono::minutes(10);
  // Others wait for a dead or stopped rank if nothing has moved for so long: two evaluations of the
  // rules are one interval apart. A rank that only calls late is neither.
  Ns halted() const { return interval; }

  // A rank goes on without a communicator if its process makes progress so long after the
  // communicator stood still: longer than a victim of a hang goes on with what was under way.
  Ns went_on() const { return hang / 2; }
  // That still holds if the process pauses for so long: the time-out of NCCL's watchdog in PyTorch.
  Ns abandoned_for() const { return 5 * hang; }

  // Rates of late ranks are over this time (--window), shares of arrivals over twice that.
  Ns window = std::chrono::minutes(1);
  Ns arrivals_window() const { return 2 * window; }
  // Strong proof is rates over this time: windows of judgements that follow each other have no
  // second in common, so a single long wait is in one of them, and not in three.
  Ns strong_window() const { return interval; }
  // Losses are counted over this time (--bandwidth-window).
  Ns losses_window() const { return late_history / 2; }
  // A late rank is late in 6 of 13 judgements of the latest so much (twice --hold), ...
  Ns late_for = std::chrono::minutes(3);
  // ... and in three quarters of those in which any rank was late (--history).
  Ns late_history = std::chrono::minutes(10);
  // No rank of a communicator is late before that has been followed for so long (--warm-up).
  Ns learning = std::chrono::minutes(5);
  // Collectives that are rarer than this are not part of every step (--longest-step).
  Ns longest_step = std::chrono::seconds(30);
  // Between two judgements of late ranks: the interval of the rules.
  Ns interval = std::chrono::seconds(15);
  // Between two snapshots that a judge takes into its history.
  Ns step = kHistoryStep;

  // Each divided by `divisor`, which is at least 1. The ratios stay, so that counts of judgements
  // do: it is the same judgement of a job that is as much faster.
  JudgementTimes Scaled(double divisor) const {
    JudgementTimes scaled = *this;
    for (Ns JudgementTimes::*const time :
         {&JudgementTimes::hang, &JudgementTimes::critical, &JudgementTimes::window,
          &JudgementTimes::late_for, &JudgementTimes::late_history, &JudgementTimes::learning,
          &JudgementTimes::longest_step, &JudgementTimes::interval, &JudgementTimes::step}) {
      scaled.*time = std::chrono::duration_cast<Ns>(this->*time / divisor);
    }
    return scaled;
  }
};

inline double Seconds(JudgementTimes::Ns time) {
  return std::chrono::duration<double>(time).count();
}

// Share of the time that others must wait for a late rank (--straggler-threshold).
inline constexpr double kLateSecondsPerSecond = 0.03;
// Share of the time below which waits are jitter (--least-wait).
inline constexpr double kLeastWaitSecondsPerSecond = 0.01;
// Three judgements in a row find a rank that is late by so much, and nobody else late: that is
// strong proof, and no more judgements are waited for. Jitter and imbalance of this size change the
// rank from judgement to judgement.
inline constexpr double kStrongLateSecondsPerSecond = 0.08;
inline constexpr int kStrongJudgements = 3;
// Beside them, ranks were uneven in so many judgements of late_history at most. Load that moves
// between ranks, such as that of experts, stays at each for a minute, and proves nothing. The rules
// allow kStrongJudgements, and judge unevenness half as often.
inline constexpr int kMostUnevenJudgements = 2 * kStrongJudgements;
// Share of the compared operations that a late rank was the last to enter.
inline constexpr double kLateShare = 0.8;
// Least number of compared operations in a window, or of timed ones in a strong window, so that one
// alone makes nobody late.
inline constexpr uint64_t kLateOperations = 10;
// Least number of ranks whose busy times are compared (--min-ranks): of three, the median is itself
// one of two that may be late.
inline constexpr size_t kMinRanks = 4;

// Snapshots in a row in which a rank was dead or stopped while others waited for it. So a debugger
// that stops a process for a moment, and a job that is resumed process by process, are not found.
inline constexpr uint32_t kHaltedSnapshots = 3;

// Share of its former bandwidth below which a communicator is degraded (--bandwidth-ratio).
inline constexpr double kBandwidthRatio = 0.6;
// Share of the operations above which those that are not followed matter.
inline constexpr double kLossShare = 0.01;

}  // namespace nccl_exporter::exporter
