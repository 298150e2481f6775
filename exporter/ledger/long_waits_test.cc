// SPDX-License-Identifier: Apache-2.0
// Kernel seconds of jobs of which few operations have times, with waits that are much longer than
// the other operations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>

#include "exporter/ledger/played_node.h"

namespace nccl_exporter::exporter {
namespace {

constexpr uint64_t kMib = 1 << 20;
constexpr int64_t kMillisecondNs = 1'000'000;
constexpr size_t kMibSize = 3;  // AddOperation()'s size class of kMib

// A job of one operation after the other. Times of 200 ms in every 2 s only; the daemon looks every
// five seconds, and whenever it is scraped.
class LongWaits : public testing::Test {
 protected:
  LongWaits() {
    counters_.Advance(node_.node(), node_.now());
    node_.Add(0);
    node_.process().losses[static_cast<size_t>(Loss::kClockMismatch)] = 1;
  }

  // An operation is counted when it is launched, and untimed until it has run.
  void Launch(Function function) { AddOperation(node_.comm(), function, kMib, 0); }
  void Run(Function function, int64_t ns) {
    Launch(function);
    RunLaunched(function, ns);
  }
  void RunLaunched(Function function, int64_t ns) {
    const bool is_timed = at_ns_ % (2 * kSecondNs) < 200 * kMillisecondNs;
    Pass(ns);
    truth_ns_ += ns;
    if (!is_timed) return;
    collector::SizeClassSnapshot& size =
        node_.comm().functions.Change(static_cast<size_t>(function)).sizes[kMibSize];
    ++size.timed_operations;
    size.busy_ns += static_cast<uint64_t>(ns);
  }
  void Pass(int64_t ns) {
    for (; ns > 0; ns -= 5 * kMillisecondNs) {
      const int64_t part = std::min(ns, 5 * kMillisecondNs);
      node_.Pass(part);
      at_ns_ += part;
      if (at_ns_ < next_look_ns_) continue;
      counters_.Advance(node_.node(), node_.now());
      next_look_ns_ = at_ns_ + static_cast<int64_t>(random_() % 5000) * kMillisecondNs;
    }
  }
  // Operations of a millisecond, 200 per second.
  void RunShort(int64_t seconds) {
    for (int i = 0; i < 200 * seconds; ++i) {
      Run(Function::kAllReduce, kMillisecondNs);
      Pass(4 * kMillisecondNs);
    }
  }
  void PassUntil(int64_t phase_ns) {
    Pass((phase_ns - at_ns_ % (2 * kSecondNs) + 2 * kSecondNs) % (2 * kSecondNs));
  }
  double Seconds() { return static_cast<double>(node_.KernelNs(counters_)) / kSecondNs; }
  double TruthSeconds() const { return static_cast<double>(truth_ns_) / kSecondNs; }

  PlayedNode node_;
  DerivedCounters counters_;
  std::mt19937_64 random_{11};
  int64_t at_ns_ = 0;
  int64_t next_look_ns_ = 0;
  int64_t truth_ns_ = 0;
};

// A rank saves for 75 s. That wait is timed, and stands for no other operation.
TEST_F(LongWaits, OneThatIsTimedIsNotTakenForOthers) {
  RunShort(60);
  PassUntil(20 * kMillisecondNs);
  for (int pause = 0; pause < 4; ++pause) {
    const double before = Seconds() - TruthSeconds();
    Run(Function::kAllReduce, 75 * kSecondNs);
    RunShort(150);
    EXPECT_NEAR(Seconds() - TruthSeconds(), before, 15) << pause;
    PassUntil((20 + 40 * pause) * kMillisecondNs);
  }
}

// The rate of a minute forgets it a minute later, as where everything is timed.
TEST_F(LongWaits, OneThatIsTimedIsForgottenByTheNextWindow) {
  RunShort(60);
  PassUntil(100 * kMillisecondNs);
  Run(Function::kAllReduce, 75 * kSecondNs);
  RunShort(15);
  const double before = Seconds() - TruthSeconds();
  RunShort(60);
  EXPECT_NEAR(Seconds() - TruthSeconds(), before, 0.5);
}

TEST_F(LongWaits, OneOfARareCollectiveIsNotTakenForOthersOfIt) {
  RunShort(60);
  for (int i = 0; i < 20; ++i) {
    RunShort(3);
    Run(Function::kBroadcast, kMillisecondNs);
  }
  PassUntil(20 * kMillisecondNs);
  const double before = Seconds() - TruthSeconds();
  Run(Function::kBroadcast, 75 * kSecondNs);
  for (int i = 0; i < 20; ++i) {
    RunShort(3);
    PassUntil(400 * kMillisecondNs);  // none of them is timed
    Run(Function::kBroadcast, kMillisecondNs);
  }
  EXPECT_NEAR(Seconds() - TruthSeconds(), before, 80);
}

// A late rank: each step waits for it, and waits fill nearly all of the time.
TEST_F(LongWaits, ThoseOfEveryStepAreCountedInFull) {
  for (const int64_t wait_ns : {90 * kMillisecondNs, 950 * kMillisecondNs, 7700 * kMillisecondNs}) {
    const double before = Seconds();
    const double truth = TruthSeconds();
    for (int64_t all = 0; all < 1800 * kSecondNs; all += wait_ns) {
      Run(Function::kAllReduce, wait_ns + static_cast<int64_t>(random_() % 20) * kMillisecondNs);
      Pass(3 * kMillisecondNs);
    }
    EXPECT_NEAR(Seconds() - before, TruthSeconds() - truth, 0.03 * (TruthSeconds() - truth))
        << wait_ns;
  }
}

// Steps of 20 s, nearly all of it a wait in one operation. The others run beside it for a moment.
TEST_F(LongWaits, WaitsAsLongAsTheStepAreCountedInFull) {
  for (int step = 0; step < 400; ++step) {
    Run(Function::kAllGather, 18 * kSecondNs);
    for (int i = 0; i < 100; ++i) Run(Function::kAllReduce, 5 * kMillisecondNs);
    Pass(static_cast<int64_t>(random_() % 2000) * kMillisecondNs);
  }
  EXPECT_NEAR(Seconds(), TruthSeconds(), 0.1 * TruthSeconds());
}

// The processor launches all operations of a step of 8 s within its first second.
TEST_F(LongWaits, OperationsThatAreLaunchedLongBeforeTheyRunAreCountedInFull) {
  for (int step = 0; step < 200; ++step) {
    for (int i = 0; i < 100; ++i) Launch(Function::kAllReduce);
    for (int i = 0; i < 100; ++i) RunLaunched(Function::kAllReduce, 75 * kMillisecondNs);
    Pass(500 * kMillisecondNs);
  }
  EXPECT_NEAR(Seconds(), TruthSeconds(), 0.03 * TruthSeconds());
}

}  // namespace
}  // namespace nccl_exporter::exporter
