// SPDX-License-Identifier: Apache-2.0
#include "collector/arrivals/arrival_observer.h"

#include <fstream>
#include <string>
#include <vector>

#include "collector/testing/arrival_fixture.h"

namespace nccl_exporter::collector {
namespace {

using ArrivalObserverTest = ArrivalFixture;

TEST_F(ArrivalObserverTest, ComparesTheRanksOfSeveralProcesses) {
  Start(0);
  Start(1);
  Discover();
  EXPECT_TRUE(Read());
  EXPECT_EQ(Counts(1), ArrivalCounts{}) << "known series begin at 0";
  for (int i = 0; i < 3; ++i) {
    Complete(0);
    Complete(1);
    Read();
  }
  EXPECT_EQ(Counts(0), (ArrivalCounts{.compared = 3, .last = 0, .lateness_ns = 0}));
  EXPECT_EQ(Counts(1)->compared, 3u);
  EXPECT_EQ(Counts(1)->last, 3u);
  EXPECT_EQ(Counts(1)->lateness_ns, 3 * kMillisecond);
}

// Regresses: a rank that was replaced was not compared, because its first communicator is another.
TEST_F(ArrivalObserverTest, ComparesRanksThatMadeOtherCommunicatorsBefore) {
  for (const int rank : {0, 1}) {
    Start(rank);
    processes_[rank].writer.PutWord(SegmentWriterV1::kFirstCommunicator, 0xa0 + rank);
    Write(rank);
  }
  Discover();
  Complete(0);
  Complete(1);
  Read();
  ASSERT_TRUE(Counts(1));
  EXPECT_EQ(Counts(1)->last, 1u);
}

TEST_F(ArrivalObserverTest, ARankAloneHasNoCountsAndIsNotRead) {
  Start(0);
  Complete(0);
  Discover();
  EXPECT_FALSE(Read());
  EXPECT_FALSE(Counts(0));
}

// The first operation shows that all ranks are there: those that were not seen before are looked
// for. A communicator with a single rank here is observed, too: nodes compare the lengths of its
// operations.
TEST_F(ArrivalObserverTest, ASnapshotHasWhatWasCompletedSinceTheOneBefore) {
  Start(0);
  Complete(0);
  Complete(0);
  Discover();
  const std::vector<RecentOperation> first = Seen(0, 0, 1, 2).recent;
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].function, Function::kAllReduce);
  EXPECT_EQ(first[0].sequence, 1u);
  EXPECT_EQ(first[0].launch_ns, 8 * kMillisecond);
  EXPECT_EQ(first[0].members, 1u);
  EXPECT_EQ(first[1].sequence, 2u);
  EXPECT_TRUE(Seen(0, 0, 1, 2).recent.empty());
  for (int i = 0; i < layout::kCompletionEntries + 7; ++i) Complete(0);
  const std::vector<RecentOperation> last = Seen(0, 0, 1, 2).recent;
  ASSERT_EQ(last.size(), static_cast<size_t>(layout::kCompletionEntries));
  EXPECT_EQ(last.front().sequence, 10u) << "the latest, in order";
  Complete(0);
  EXPECT_TRUE(Seen(0, 0, 1, 1).recent.empty()) << "on one node";
  EXPECT_TRUE(Seen(0, 0, 2, 2).recent.empty()) << "of another communicator";
}

TEST_F(ArrivalObserverTest, MatchesOnlyWhenEveryRankIsKnown) {
  Start(0);
  Start(1);
  Discover();
  Start(2);  // not discovered yet
  for (const int rank : {0, 1, 2}) Complete(rank);
  Read();
  Read();
  EXPECT_EQ(Counts(1),
            (ArrivalCounts{.compared = 1, .last = 0, .lateness_ns = Counts(1)->lateness_ns}));
  EXPECT_EQ(Counts(2)->last, 1u);
}

// Regression: where a listing had to wait, ranks were compared while others of their communicator
// were not known yet.
TEST_F(ArrivalObserverTest, MatchesNothingUntilTheFilesOfAllRanksAreKnown) {
  known_until_ns_ = now_.monotonic_ns;
  Start(0);
  Start(1);
  Discover();
  for (const int rank : {0, 1}) Complete(rank);
  for (int i = 0; i < 50; ++i) Read();
  EXPECT_EQ(Counts(1), ArrivalCounts{});
  Start(2);
  Complete(2);
  known_until_ns_ = INT64_MAX;
  Discover();
  Advance(kAskInterval);
  Read();
  EXPECT_EQ(Counts(1)->last, 0u);
  EXPECT_EQ(Counts(2)->last, 1u);
}

TEST_F(ArrivalObserverTest, ARestartedObserverBeginsWithWhatTheRingsHold) {
  Start(0);
  Start(1);
  for (int i = 0; i < 600; ++i) {
    for (const int rank : {0, 1}) Complete(rank);
  }
  Discover();
  Read();
  EXPECT_EQ(Counts(1)->last, 512u);
  EXPECT_EQ(Uncompared(Uncompared::kRingOverrun), 0u);
}

TEST_F(ArrivalObserverTest, ARingOverrunLosesComparisonsOnly) {
  Start(0);
  Start(1);
  Discover();
  for (const int rank : {0, 1}) Complete(rank);
  Read();
  for (int i = 0; i < 600; ++i) {
    for (const int rank : {0, 1}) Complete(rank);
  }
  Read();
  EXPECT_EQ(Counts(1)->last, 513u);
  EXPECT_EQ(Counts(0)->last, 0u);
  EXPECT_EQ(Uncompared(Uncompared::kRingOverrun), 2 * 88u);
}

TEST_F(ArrivalObserverTest, AFinalizedCommunicatorKeepsItsCountsUntilItsSlotIsClaimedAnew) {
  Start(0);
  Start(1);
  for (const int rank : {0, 1}) Complete(rank);
  Discover();
  Read();
  for (const int rank : {0, 1}) Complete(rank);
  for (const int rank : {0, 1}) Open(rank, 0, 7, 3);
  Discover();
  EXPECT_TRUE(Read()) << "what was completed last";
  EXPECT_EQ(Counts(1)->last, 2u);
  Discover();
  EXPECT_FALSE(Read());
  EXPECT_EQ(Counts(1)->last, 2u);
  for (const int rank : {0, 1}) {
    for (size_t entry : {0, 1})
      processes_[rank].writer.PutWord(processes_[rank].writer.CompletionAt(0, entry), 0);
    Open(rank, 0, 9, 2, 2);
  }
  Discover();
  EXPECT_FALSE(Counts(1)) << "of the former generation";
  Read();
  EXPECT_EQ(Counts(1, 0, 2), ArrivalCounts{});
}

TEST_F(ArrivalObserverTest, ARingThatIsClaimedAnewBetweenTwoLooksIsNotMatched) {
  Start(0);
  Start(1);
  for (const int rank : {0, 1}) Complete(rank);
  Discover();
  Read();
  for (const int rank : {0, 1}) {
    Open(rank, 0, 9, 2, 2);
    Complete(rank);
  }
  Read();
  EXPECT_EQ(Counts(1)->compared, 1u);
}

TEST_F(ArrivalObserverTest, TheCountsOfAProcessThatHasGoneStay) {
  Start(0);
  Start(1);
  for (const int rank : {0, 1}) Complete(rank);
  Discover();
  Read();
  processes_[1].is_alive = false;
  Discover();
  Discover();
  EXPECT_EQ(Counts(1)->last, 1u);
  EXPECT_FALSE(Read()) << "rank 0 is alone now";
  EXPECT_EQ(Counts(0)->compared, 1u);
}

TEST_F(ArrivalObserverTest, CommunicatorsOfOneProcessAreKeptApart) {
  Start(0);
  Start(1);
  for (const int rank : {0, 1}) Open(rank, 1, 8);
  for (const int rank : {0, 1}) {
    Complete(rank, 0);
    Complete(rank, 0);
    Complete(rank, 1);
  }
  Discover();
  Read();
  EXPECT_EQ(Counts(1, 0)->last, 2u);
  EXPECT_EQ(Counts(1, 1)->last, 1u);
}

TEST_F(ArrivalObserverTest, AFileThatIsNoSegmentIsPassedOver) {
  Start(0);
  Start(1);
  processes_[1].writer.PutWord(SegmentWriterV1::kMagic, 0);
  Write(1);
  Discover();
  EXPECT_FALSE(Read());
}

}  // namespace
}  // namespace nccl_exporter::collector
