// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/late/bandwidth_past.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exporter/testing/example_snapshot.h"

namespace nccl_exporter::exporter {
namespace {

using testing::Contains;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;

constexpr int64_t kSecondNs = 1000000000;
constexpr uint64_t kMiB = 1 << 20;

// The two ranks of one communicator, with ten AllReduces in each step of 5 s.
class BandwidthPastTest : public testing::Test {
 protected:
  BandwidthPastTest() {
    node_.taken_realtime_ns = 1700000000 * kSecondNs;
    for (uint64_t rank = 0; rank < 2; ++rank) {
      node_.processes.push_back(EmptyProcess(10 + rank));
      node_.processes.back().identity = {{"SLURM_JOB_ID", "42"}};
      node_.processes.back().communicators.push_back(EmptyCommunicator(7, rank));
      node_.processes.back().communicators.back().name = "dp";
      node_.processes.back().communicators.back().ranks = 2;
    }
  }

  // Milliseconds of each operation by rank; 0: nothing happens.
  void Run(int seconds, uint64_t first_ms, uint64_t second_ms, uint64_t bytes = 32 * kMiB) {
    for (; seconds > 0; seconds -= 5) {
      for (int i = 0; i < 10; ++i) {
        if (first_ms != 0) Add(0, bytes, first_ms);
        if (second_ms != 0) Add(1, bytes, second_ms);
      }
      node_.taken_realtime_ns += 5 * kSecondNs;
      history_.Record(BookOf(node_), node_.taken_realtime_ns);
      past_.Record(history_, node_.taken_realtime_ns, node_.taken_realtime_ns);
      has_ever_found_ = has_ever_found_ || !Findings().empty();
    }
  }
  void Add(size_t rank, uint64_t bytes, uint64_t ms) {
    AddOperation(node_.processes[rank].communicators.front(), Function::kAllReduce, bytes,
                 ms * 1000000);
  }
  std::vector<Finding> Findings() const { return past_.Findings(node_); }

  collector::NodeSnapshot node_;
  NodeHistory history_;
  BandwidthPast past_{Thresholds{}};
  bool has_ever_found_ = false;
};

TEST_F(BandwidthPastTest, TheCommunicatorsNameIsSafeOnATerminal) {
  for (collector::ProcessSnapshot& process : node_.processes)
    process.communicators.front().name = "dp\x1b[2J" + std::string(300, 'x');
  Run(600, 10, 12);
  Run(240, 30, 30);
  ASSERT_EQ(Findings().size(), 1u);
  EXPECT_THAT(Findings().front().communicator_name,
              testing::AllOf(testing::StartsWith("dp?[2Jx"), testing::SizeIs(testing::Le(64u))));
}

TEST_F(BandwidthPastTest, FindsTransfersThatAreSlowerThanBefore) {
  Run(600, 10, 12);
  EXPECT_THAT(Findings(), IsEmpty());
  Run(180, 20, 24);
  ASSERT_THAT(Findings(), SizeIs(1));
  const Finding finding = Findings().front();
  EXPECT_EQ(finding.kind, FindingKind::kBandwidthDegraded);
  EXPECT_EQ(finding.severity, Severity::kWarning);
  EXPECT_THAT(finding.headline,
              testing::MatchesRegex("AllReduce of 16 MiB and more in dp of job 42 has 50 % of its "
                                    "former bandwidth since 22:2[3-4]:[0-9][0-9] UTC, on every "
                                    "rank of this node."));
  EXPECT_EQ(finding.cost, "these transfers take 2.0 times as long");
  EXPECT_THAT(finding.evidence, Contains(Pair("bus bandwidth now", "1.7 GB/s")));
  EXPECT_THAT(finding.evidence, Contains(Pair("before", "3.4 GB/s")));
  EXPECT_EQ(finding.runbook, "NCCLBandwidthDegraded");
}

TEST_F(BandwidthPastTest, StaysUntilTheBandwidthIsBack) {
  Run(600, 10, 12);
  Run(1200, 20, 24);
  EXPECT_THAT(Findings(), SizeIs(1)) << "not compared with the fault itself";
  Run(90, 10, 12);
  EXPECT_THAT(Findings(), IsEmpty());
}

TEST_F(BandwidthPastTest, TakesAFaultOfHalfAnHourForTheNewNormal) {
  Run(600, 10, 12);
  Run(2100, 20, 24);
  EXPECT_THAT(Findings(), IsEmpty());
  Run(1200, 20, 24);
  EXPECT_THAT(Findings(), IsEmpty());
}

// A6 of the operator trial: a late rank looked like a slow network.
TEST_F(BandwidthPastTest, ALateRankIsNoSlowNetwork) {
  Run(600, 10, 10);
  Run(600, 100, 10);
  EXPECT_FALSE(has_ever_found_);
}

TEST_F(BandwidthPastTest, ComparesOnlyMessagesOfTheSameSize) {
  Run(600, 10, 10, 64 * kMiB);
  Run(600, 15, 15, 32 * kMiB);
  EXPECT_FALSE(has_ever_found_);
}

TEST_F(BandwidthPastTest, ComparesOnlyLargeMessages) {
  Run(600, 10, 10, 4 * kMiB);
  Run(600, 30, 30, 4 * kMiB);
  EXPECT_FALSE(has_ever_found_);
}

TEST_F(BandwidthPastTest, WantsHalfOfThePast) {
  Run(150, 10, 10);
  Run(300, 30, 30);
  EXPECT_FALSE(has_ever_found_);
}

TEST_F(BandwidthPastTest, ADipOfAMinuteIsNoFinding) {
  Run(600, 10, 10);
  Run(60, 30, 30);
  Run(600, 10, 10);
  EXPECT_FALSE(has_ever_found_);
}

TEST_F(BandwidthPastTest, AnIdleTimeIsNoFinding) {
  Run(600, 10, 10);
  Run(600, 0, 0);
  EXPECT_FALSE(has_ever_found_);
}

// Eight users fill all there is room for before the job of another user starts.
TEST_F(BandwidthPastTest, AUserHasAShareWhoeverCameFirst) {
  const auto run_crowd = [&](uint64_t first_ms, uint64_t second_ms) {
    for (int step = 0; step < 12; ++step) {
      for (collector::ProcessSnapshot& process : node_.processes) {
        if (process.uid < 2000) continue;
        for (collector::CommunicatorSnapshot& communicator : process.communicators) {
          for (const Function function : {Function::kBroadcast, Function::kReduce}) {
            AddOperation(communicator, function, 32 * kMiB, 1000000);
            AddOperation(communicator, function, 512 * kMiB, 10000000);
          }
        }
      }
      Run(5, first_ms, second_ms);
    }
  };
  constexpr uint64_t kUsers = 8, kEach = kMostPastsPerUser / 4;
  static_assert(kUsers * kEach * 4 == kMostPasts);
  for (uint64_t user = 0; user < kUsers; ++user) {
    node_.processes.push_back(EmptyProcess(2000 + user));
    node_.processes.back().uid = 2000 + user;
    for (uint64_t i = 0; i < kEach; ++i) {
      node_.processes.back().communicators.push_back(EmptyCommunicator(1000 * user + i, 0));
      node_.processes.back().communicators.back().ranks = 1;
    }
  }
  Run(5, 0, 0);
  run_crowd(0, 0);
  EXPECT_EQ(past_.left_out(), 0u);
  Run(300, 10, 12);
  EXPECT_GT(past_.left_out(), 0u);
  run_crowd(10, 12);
  Run(240, 10, 12);
  EXPECT_THAT(Findings(), IsEmpty());
  Run(180, 20, 24);
  ASSERT_THAT(Findings(), SizeIs(1));
  EXPECT_EQ(Findings().front().job, "job 42");
}

// A late rank of another node makes the transfers of all ranks here look slow.
TEST_F(BandwidthPastTest, JudgesNoCommunicatorWithRanksElsewhere) {
  for (collector::ProcessSnapshot& process : node_.processes) process.communicators[0].ranks = 8;
  Run(600, 10, 12);
  Run(180, 20, 24);
  EXPECT_FALSE(has_ever_found_);
}

}  // namespace
}  // namespace nccl_exporter::exporter
