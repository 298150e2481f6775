// SPDX-License-Identifier: Apache-2.0
// Tests of what is counted once for all ranks of a communicator on the node, and when it is quiet.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "exporter/testing/played_node.h"

namespace nccl_exporter::exporter {
namespace {

constexpr uint64_t kMib = 1 << 20;
constexpr uint64_t kLarge = 32 * kMib;
constexpr OperationKind kAllReduceKind{.function = Function::kAllReduce, .size_class = 4};
constexpr uint64_t kBusBytes = kLarge * 2 * 7 / 8;  // of eight ranks

// One process per rank of one communicator.
class Ranks {
 public:
  explicit Ranks(uint64_t ranks) {
    Enter({});
    for (uint64_t rank = 0; rank < ranks; ++rank) {
      collector::ProcessSnapshot process = EmptyProcess(100 + rank);
      process.start_realtime_ns = now.realtime_ns;
      collector::CommunicatorSnapshot communicator = EmptyCommunicator(1, rank);
      communicator.created_realtime_ns = now.realtime_ns;
      communicator.nodes = 2;
      communicator.arrivals.emplace();
      process.communicators.push_back(std::move(communicator));
      all_.push_back(std::move(process));
    }
    is_present.assign(ranks, true);
  }

  collector::ProcessSnapshot& process(uint64_t rank) { return all_[rank]; }
  collector::CommunicatorSnapshot& comm(uint64_t rank) { return all_[rank].communicators.front(); }

  void Do(uint64_t rank, int64_t ns, Function function = Function::kAllReduce,
          uint64_t bytes = kLarge) {
    AddOperation(comm(rank), function, bytes, static_cast<uint64_t>(ns));
    ++comm(rank).started_sequence;
    comm(rank).last_progress_monotonic_ns = now.monotonic_ns;
  }
  void Compare() {
    for (size_t rank = 0; rank < all_.size(); ++rank) ++comm(rank).arrivals->compared;
  }

  // A snapshot `seconds` later, of the ranks that are present.
  void Pass(double seconds = 5) {
    const auto ns = static_cast<int64_t>(seconds * static_cast<double>(kSecondNs));
    now.monotonic_ns += ns;
    now.realtime_ns += ns;
    collector::NodeSnapshot node;
    for (size_t rank = 0; rank < all_.size(); ++rank) {
      if (is_present[rank]) node.processes.push_back(all_[rank]);
    }
    Enter(std::move(node));
  }

  // Null where the rank was not in the latest snapshot.
  const RankCounts* CountsOf(uint64_t rank) const {
    for (const collector::ProcessSnapshot& process : book_->node->processes) {
      if (process.pid == 100 + rank) return book_->Of(process, process.communicators.front());
    }
    return nullptr;
  }
  const std::optional<NodeCounts>& Node(uint64_t rank) {
    static const std::optional<NodeCounts> kNone;
    const RankCounts* const counts = CountsOf(rank);
    return counts != nullptr ? counts->node : kNone;
  }
  LargeCounts Large(uint64_t rank, OperationKind kind = kAllReduceKind) {
    const auto& node = Node(rank);
    return node && node->large.contains(kind) ? node->large.at(kind) : LargeCounts{};
  }
  const Book& book() const { return *book_; }
  bool IsQuiet(uint64_t rank) { return CountsOf(rank)->is_quiet; }

  Ledger ledger;
  Moment now{.monotonic_ns = 1000 * kSecondNs, .realtime_ns = 1'700'000'000 * kSecondNs};
  std::vector<bool> is_present;

 private:
  void Enter(collector::NodeSnapshot node) {
    book_ = ledger.Enter(std::make_shared<const collector::NodeSnapshot>(std::move(node)), now);
  }

  std::vector<collector::ProcessSnapshot> all_;
  std::shared_ptr<const Book> book_;
};

LargeCounts Counts(uint64_t operations, uint64_t ns) {
  return {.timed_operations = operations, .bus_bytes = operations * kBusBytes, .busy_ns = ns};
}

TEST(LargeTransfers, AreThoseOfTheRankThatWaitedLeastOnTheRowOfTheLowest) {
  Ranks ranks(3);
  ranks.Do(0, 9000);
  ranks.Do(1, 8000);
  ranks.Do(2, 1000);
  ranks.Pass();
  EXPECT_EQ(ranks.Large(0), Counts(1, 1000));
  EXPECT_TRUE(ranks.Node(0)->is_lowest);
  EXPECT_FALSE(ranks.Node(1).has_value());
  EXPECT_FALSE(ranks.Node(2).has_value());
  // In the next interval another one is the last to arrive.
  for (int i = 0; i < 4; ++i) {
    ranks.Do(0, 2000);
    ranks.Do(1, 7000);
    ranks.Do(2, 7000);
  }
  ranks.Pass();
  EXPECT_EQ(ranks.Large(0), Counts(5, 9000));
}

// By time for a byte: a rank with few operations is not the fastest because of that.
TEST(LargeTransfers, OfTheRankWithTheLeastTimeForAByte) {
  Ranks ranks(2);
  ranks.Do(0, 2000);
  for (int i = 0; i < 3; ++i) ranks.Do(1, 1000);
  ranks.Pass();
  EXPECT_EQ(ranks.Large(0), Counts(3, 3000));
}

TEST(LargeTransfers, AreCountedOncePerIntervalHoweverManyScrape) {
  Ranks ranks(2);
  for (int i = 0; i < 3; ++i) {
    ranks.Do(0, 2000);
    ranks.Pass(1);
    EXPECT_EQ(ranks.Large(0), LargeCounts{}) << "the other's operation may not have ended yet";
    ranks.Do(1, 1000);
  }
  ranks.Pass(1);
  EXPECT_EQ(ranks.Large(0), Counts(3, 3000));
}

TEST(LargeTransfers, AreOfTheKindWithTheMostBytesOnTheNode) {
  Ranks ranks(2);
  ranks.Do(0, 1000, Function::kAllReduce, kMib);
  ranks.Do(0, 1000, Function::kOther, 512 * kMib);  // has no bus bandwidth
  ranks.Do(0, 1000, Function::kSend, 512 * kMib);
  ranks.Pass();
  EXPECT_TRUE(ranks.Node(0)->large.empty());
  ranks.Do(0, 1000);
  ranks.Do(1, 1000, Function::kAllGather, kLarge);
  ranks.Do(1, 1000, Function::kAllGather, kLarge);
  ranks.Pass();
  const OperationKind gather{.function = Function::kAllGather, .size_class = 4};
  EXPECT_EQ(ranks.Node(0)->large.size(), 1u);
  EXPECT_EQ(ranks.Large(0, gather).timed_operations, 2u);
  for (int i = 0; i < 2; ++i) ranks.Do(0, 1000);
  ranks.Pass();
  EXPECT_EQ(ranks.Node(0)->large.size(), 1u) << "not twice as many bytes";
  ranks.Do(0, 1000);
  ranks.Pass();
  EXPECT_EQ(ranks.Large(0), Counts(1, 1000)) << "of this interval";
  EXPECT_EQ(ranks.Large(0, gather).timed_operations, 2u) << "its sum stays";
}

TEST(LargeTransfers, AreTheTimedOnes) {
  Ranks ranks(2);
  ranks.Do(0, 3000);
  ranks.Do(1, 1000);
  for (int i = 0; i < 9; ++i) ranks.Do(0, 0);
  for (int i = 0; i < 9; ++i) ranks.Do(1, 0);
  ranks.Pass();
  EXPECT_EQ(ranks.Large(0), Counts(1, 1000));
}

TEST(NodeCountsTest, GoOnAtTheNextRankWhenTheLowestLeaves) {
  Ranks ranks(2);
  ranks.Do(0, 1000);
  ranks.Do(1, 2000);
  ranks.Compare();
  ranks.Pass();
  EXPECT_EQ(ranks.Node(0)->compared, 1u);
  ranks.is_present[0] = false;
  ranks.Do(1, 2000);
  ranks.Compare();
  ranks.Pass();
  EXPECT_TRUE(ranks.Node(1)->is_lowest);
  EXPECT_EQ(ranks.Large(1), Counts(1, 2000)) << "what was counted before is not counted again";
  EXPECT_EQ(ranks.Node(1)->compared, 1u);
  // A snapshot had missed it only. What it did meanwhile is not counted twice.
  ranks.is_present[0] = true;
  ranks.Do(0, 1000);
  ranks.Compare();
  ranks.Pass();
  EXPECT_EQ(ranks.Node(0)->compared, 2u);
  EXPECT_EQ(ranks.Large(0), Counts(1, 1000));
  ranks.Do(0, 1000);
  ranks.Pass();
  EXPECT_EQ(ranks.Large(0), Counts(2, 2000));
  EXPECT_TRUE(ranks.Node(0)->is_lowest);
  EXPECT_FALSE(ranks.Node(1)->is_lowest);
  EXPECT_EQ(ranks.Node(1)->compared, 1u) << "it stays as it is";
}

// The sum has all ranks here; what a rank had counted stays counted when it leaves.
TEST(NodeCountsTest, HaveTheBusBytesOfAllRanksThatEverWere) {
  Ranks ranks(2);
  using Bytes = collector::NetworkBusBytes;
  ranks.Pass();
  EXPECT_FALSE(ranks.Node(0)->network) << "not known";
  ranks.comm(0).network_bus_bytes = Bytes{.all = {90, 5}, .timed = {0, 0}};
  ranks.Pass();
  EXPECT_EQ(ranks.Node(0)->network, Bytes()) << "nothing is timed so far";
  ranks.comm(0).network_bus_bytes = Bytes{.all = {100, 10}, .timed = {10, 1}};
  ranks.comm(1).network_bus_bytes = Bytes{.all = {200, 20}, .timed = {20, 2}};
  ranks.Pass();
  EXPECT_EQ(ranks.Node(0)->network, (Bytes{.all = {300, 30}, .timed = {30, 3}}));
  ranks.comm(1).network_bus_bytes = Bytes{.all = {201, 20}, .timed = {20, 3}};
  ranks.is_present[0] = false;
  ranks.Pass();
  EXPECT_EQ(ranks.Node(1)->network, (Bytes{.all = {1, 0}, .timed = {0, 1}}));
  ranks.is_present[0] = true;
  ranks.comm(1).network_bus_bytes = Bytes{.all = {50, 50}, .timed = {50, 50}};
  ranks.Pass();
  EXPECT_EQ(ranks.Node(0)->network, (Bytes{.all = {300, 60}, .timed = {60, 50}}))
      << "a count that decreases is unchanged";
}

// Else rate() would see what the rank had moved before, beside timed bytes that begin with it.
TEST(NodeCountsTest, CountNoBusBytesFromBeforeARankIsTimedOnARowThatHasSome) {
  Ranks ranks(2);
  using Bytes = collector::NetworkBusBytes;
  ranks.comm(0).network_bus_bytes = Bytes{.all = {100, 0}, .timed = {10, 0}};
  ranks.comm(1).network_bus_bytes = Bytes{.all = {9000, 90}, .timed = {0, 0}};
  ranks.Pass();
  ranks.comm(1).network_bus_bytes = Bytes{.all = {9100, 100}, .timed = {10, 1}};
  ranks.Pass();
  EXPECT_EQ(ranks.Node(0)->network, (Bytes{.all = {100, 100}, .timed = {10, 1}}))
      << "it is the first that receives";
  ranks.comm(1).network_bus_bytes = Bytes{.all = {9200, 100}, .timed = {20, 1}};
  ranks.Pass();
  EXPECT_EQ(ranks.Node(0)->network, (Bytes{.all = {200, 100}, .timed = {20, 1}}));
}

TEST(NodeCountsTest, OfBusBytesBeginAgainInsteadOfStopping) {
  Ranks ranks(2);
  constexpr uint64_t kMost = uint64_t{1} << 62;
  using Bytes = collector::NetworkBusBytes;
  ranks.comm(0).network_bus_bytes = Bytes{.all = {kMost, 10}, .timed = {1, 1}};
  ranks.comm(1).network_bus_bytes = Bytes{.all = {kMost - 5, 0}, .timed = {1, 0}};
  ranks.Pass();
  EXPECT_EQ(ranks.Node(0)->network, (Bytes{.all = {kMost - 5, 10}, .timed = {1, 1}}))
      << "so many at once are of a forged segment";
  ranks.comm(0).network_bus_bytes = Bytes{.all = {kMost, 20}, .timed = {2, 2}};
  ranks.comm(1).network_bus_bytes = Bytes{.all = {kMost + 5, 0}, .timed = {3, 0}};
  ranks.Pass();
  EXPECT_EQ(ranks.Node(0)->network, (Bytes{.all = {10, 20}, .timed = {2, 2}}));
}

// One that no slot was left for belongs to no other.
TEST(NodeCountsTest, OfACommunicatorWithoutIdentityHaveItsOwnBusBytes) {
  Ranks ranks(2);
  using Bytes = collector::NetworkBusBytes;
  const Bytes bytes{.all = {100, 10}, .timed = {10, 1}};
  ranks.comm(0).network_bus_bytes = ranks.comm(1).network_bus_bytes = bytes;
  ranks.comm(1).has_identity = false;
  ranks.Pass();
  EXPECT_EQ(ranks.Node(0)->network, bytes);
  EXPECT_EQ(ranks.Node(1)->network, bytes);
}

TEST(NodeCountsTest, StayAtTheLowestRankWhileItIsServedAfterItsEnd) {
  Ranks ranks(2);
  ranks.Compare();
  ranks.Pass();
  ranks.process(0).is_alive = false;
  ++ranks.comm(1).arrivals->compared;
  ranks.Pass();
  EXPECT_TRUE(ranks.Node(0)->is_lowest);
  EXPECT_EQ(ranks.Node(0)->compared, 2u);
  EXPECT_FALSE(ranks.Node(1).has_value());
}

// One was closed, and made again with the same id: the row is that of the newer one.
TEST(NodeCountsTest, OfOneRankTwiceAreThoseOfTheOneInUse) {
  Ranks ranks(2);
  ranks.comm(1).rank = 0;
  ranks.comm(0).is_closed = true;
  ranks.Pass();
  EXPECT_FALSE(ranks.Node(0).has_value());
  EXPECT_TRUE(ranks.Node(1)->is_lowest);
}

TEST(NodeCountsTest, HaveNoComparedOperationsWhereNothingIsCompared) {
  Ranks ranks(1);
  ranks.comm(0).arrivals.reset();
  ranks.Pass();
  EXPECT_TRUE(ranks.Node(0)->is_lowest);
  EXPECT_FALSE(ranks.Node(0)->compared.has_value());
}

// The matcher has forgotten the communicator, and counts from 0.
TEST(NodeCountsTest, GoOnWhenComparedOperationsBeginAgain) {
  Ranks ranks(2);
  for (int i = 0; i < 10; ++i) ranks.Compare();
  ranks.Pass();
  EXPECT_EQ(ranks.Node(0)->compared, 10u);
  for (uint64_t rank : {0, 1}) ranks.comm(rank).arrivals->compared = 0;
  ranks.Pass();
  EXPECT_EQ(ranks.Node(0)->compared, 10u);
  ranks.Compare();
  ranks.Pass();
  EXPECT_EQ(ranks.Node(0)->compared, 11u);
}

TEST(NodeCountsTest, AfterARestartStartAtZero) {
  Ranks ranks(2);
  ranks.Do(0, 1000);
  ranks.Pass(3600);
  ranks.ledger = Ledger();
  ranks.Pass();
  EXPECT_TRUE(ranks.Node(0)->large.empty());
  EXPECT_EQ(ranks.Node(0)->since_realtime_ns, ranks.now.realtime_ns);
  ranks.Do(0, 2000);
  ranks.Pass();
  EXPECT_EQ(ranks.Large(0), Counts(1, 2000));
}

TEST(NodeCountsTest, OfAForgedSegmentNeverDecrease) {
  Ranks ranks(2);
  ranks.Do(0, 1000);
  ranks.Pass();
  LargeCounts last = ranks.Large(0);
  std::mt19937_64 random(3);
  for (int i = 0; i < 2000; ++i) {
    const auto forged = [&] { return random() >> random() % 64; };
    collector::CommunicatorSnapshot& comm = ranks.comm(random() % 2);
    comm.functions.Change(static_cast<size_t>(Function::kAllReduce)).sizes[4] = {
        .operations = forged(),
        .bytes = forged(),
        .timed_operations = forged(),
        .timed_bytes = forged(),
        .busy_ns = forged()};
    ranks.Pass();
    const LargeCounts now = ranks.Large(0);
    ASSERT_GE(now.timed_operations, last.timed_operations);
    ASSERT_GE(now.bus_bytes, last.bus_bytes);
    ASSERT_GE(now.busy_ns, last.busy_ns);
    last = now;
  }
  EXPECT_GT(last.timed_operations, 1u);
}

// increase() of all rows together: rows that end and begin again give no operation twice.
TEST(NodeCountsTest, OfRanksThatComeAndGoAddUpToWhatWasDone) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Ranks ranks(4);
    std::mt19937_64 random(seed);
    std::map<uint64_t, uint64_t> rows;
    uint64_t increase = 0, compared = 0, expected = 0;
    std::array<uint64_t, 4> seen{};  // compared operations when the rank was last present
    for (int i = 0; i < 300; ++i) {
      for (uint64_t more = random() % 10; more > 0; --more, ++compared) ranks.Compare();
      for (uint64_t rank = 0; rank < 4; ++rank) ranks.is_present[rank] = random() % 4 != 0;
      if (i % 10 == 0) ranks.is_present.assign(4, true);
      ranks.Pass();
      uint64_t fewest = compared;
      for (uint64_t rank = 0; rank < 4; ++rank) {
        if (ranks.is_present[rank]) fewest = std::min(fewest, compared - seen[rank]);
      }
      if (std::ranges::find(ranks.is_present, true) != ranks.is_present.end()) expected += fewest;
      for (uint64_t rank = 0; rank < 4; ++rank) {
        if (ranks.is_present[rank]) seen[rank] = compared;
        const auto& node = ranks.Node(rank);
        if (!node || !node->compared) continue;
        ASSERT_GE(*node->compared, rows[rank]) << seed;
        increase += *node->compared - rows[rank];
        rows[rank] = *node->compared;
      }
    }
    // Operations that came while all ranks that are present now were away are counted twice: a
    // number that is too low would make the shares of last arrivals too high.
    EXPECT_EQ(increase, expected) << seed;
    EXPECT_GE(increase, *std::ranges::max_element(seen)) << seed;
  }
}

uint64_t Progress(Ranks& ranks, uint64_t rank) {
  return ranks.Node(rank) ? ranks.Node(rank)->progress.value_or(0) : 0;
}

TEST(Progress, OfANodeIsThatOfAllItsRanksAndLosesNothingWithOneThatGoes) {
  Ranks ranks(3);
  ranks.Do(1, 1000);
  ranks.Do(2, 1000);
  ranks.Pass();
  EXPECT_EQ(Progress(ranks, 0), 4u) << "two starts and two completions";
  EXPECT_FALSE(ranks.Node(1).has_value()) << "it is not the lowest";
  ranks.is_present[2] = false;
  ranks.Pass();
  EXPECT_EQ(Progress(ranks, 0), 4u);
  ranks.Do(1, 1000);
  ranks.Pass();
  EXPECT_EQ(Progress(ranks, 0), 6u);
  // The next one goes on from 0.
  ranks.is_present[0] = false;
  ranks.Pass();
  EXPECT_EQ(Progress(ranks, 1), 0u);
  ranks.Do(1, 1000);
  ranks.Pass();
  EXPECT_EQ(Progress(ranks, 1), 2u);
}

// Ranks are seen one after the other when they start: a row would else come and go.
TEST(Progress, StaysOnARowThatHasCountedNothing) {
  Ranks ranks(2);
  ranks.is_present[0] = false;
  ranks.Pass();
  EXPECT_EQ(ranks.Node(1)->progress, 0u);
  ranks.is_present[0] = true;
  ranks.Do(1, 1000);
  ranks.Pass();
  EXPECT_EQ(ranks.Node(0)->progress, 2u);
  EXPECT_EQ(ranks.Node(1)->progress, 0u);
}

// The state of operations may become known: that is a change, and a counter does not decrease.
TEST(Progress, CountsEachChangeOnce) {
  Ranks ranks(1);
  collector::CommunicatorSnapshot& communicator = ranks.comm(0);
  communicator.started_sequence = 9;
  communicator.in_flight = {{.function = Function::kReduce, .start_realtime_ns = 5}};
  communicator.completion_is_known = false;
  ranks.Pass();
  EXPECT_EQ(ranks.CountsOf(0)->progress, 18u) << "completions cannot be seen";
  EXPECT_EQ(ranks.book().Of(ranks.book().node->processes[0])->progress, 19u)
      << "that the communicator was made is progress, too";
  EXPECT_EQ(Progress(ranks, 0), 18u);
  communicator.completion_is_known = true;
  ranks.Pass();
  EXPECT_EQ(ranks.CountsOf(0)->progress, 17u);
  EXPECT_EQ(Progress(ranks, 0), 19u);
  ranks.Pass();
  EXPECT_EQ(Progress(ranks, 0), 19u);
  // Nothing is in flight in a finalized communicator.
  communicator.completion_is_known = false;
  communicator.is_closed = true;
  ranks.Pass();
  EXPECT_EQ(ranks.CountsOf(0)->progress, 17u);
}

TEST(Progress, OfSendsAndReceivesIsCountedToo) {
  Ranks ranks(1);
  AddOperation(ranks.comm(0), Function::kSend, 8, 0);
  AddOperation(ranks.comm(0), Function::kRecv, 8, 0);
  ranks.Pass();
  EXPECT_EQ(Progress(ranks, 0), 4u);
}

TEST(Progress, OfAForgedSegmentIsNotCounted) {
  Ranks ranks(1);
  ranks.comm(0).started_sequence = uint64_t{1} << 61;
  ranks.Pass();
  EXPECT_EQ(Progress(ranks, 0), 0u);
}

TEST(Quiet, IsACommunicatorOnWhichNothingMovesForFiveSeconds) {
  Ranks ranks(1);
  ranks.Pass(1);
  EXPECT_TRUE(ranks.IsQuiet(0)) << "it was never used";
  ranks.Do(0, 1000);
  ranks.Pass(4.999);
  EXPECT_FALSE(ranks.IsQuiet(0));
  ranks.Pass(0.001);
  EXPECT_TRUE(ranks.IsQuiet(0));
  for (int i = 0; i < 3; ++i) {
    ranks.Do(0, 1000);
    ranks.Pass(1);
    EXPECT_FALSE(ranks.IsQuiet(0));
    ranks.Pass(15);
    EXPECT_TRUE(ranks.IsQuiet(0));
  }
}

TEST(Quiet, IsACommunicatorOfAHaltedProcessAtOnce) {
  Ranks ranks(2);
  ranks.Do(0, 0);
  ranks.Do(1, 0);
  ranks.process(0).is_alive = false;
  ranks.process(1).is_stopped = true;
  ranks.Pass(0.1);
  EXPECT_TRUE(ranks.IsQuiet(0));
  EXPECT_TRUE(ranks.IsQuiet(1));
  ranks.process(1).is_stopped = false;
  ranks.Pass(0.1);
  EXPECT_FALSE(ranks.IsQuiet(1));
}

TEST(Quiet, TimesAreScaledAsTheOthers) {
  Ranks ranks(1);
  ranks.ledger = Ledger(LedgerTimes().Scaled(5));
  ranks.Do(0, 1000);
  ranks.Pass(0.9);
  EXPECT_FALSE(ranks.IsQuiet(0));
  ranks.Pass(0.1);
  EXPECT_TRUE(ranks.IsQuiet(0));
}

}  // namespace
}  // namespace nccl_exporter::exporter
