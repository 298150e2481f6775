// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/late/usual_times.h"

#include <gtest/gtest.h>

#include "exporter/testing/example_snapshot.h"

namespace nccl_exporter::exporter {
namespace {

class UsualTimesTest : public testing::Test {
 protected:
  static constexpr int64_t kMost = 10;

  PeerRates PeersOf(uint64_t rank, double busy) {
    communicator_.rank = rank;
    return {.key = {},
            .ranks = {{.rank = {&process_, &communicator_}, .process = 0, .busy = busy}},
            .is_pipeline = true,
            .steps = {}};
  }
  void Record(int64_t number, uint64_t rank, double busy) {
    usual_.Record(PeersOf(rank, busy), processes_, number, kMost);
    usual_.Settle();
  }
  std::optional<double> Exceeding(uint64_t rank, double busy) {
    PeerRates peers = PeersOf(rank, busy);
    usual_.SubtractFrom(peers, processes_);
    return peers.ranks.front().busy;
  }

  collector::ProcessSnapshot process_ = EmptyProcess(1);
  collector::CommunicatorSnapshot communicator_ = EmptyCommunicator(1, 0);
  std::vector<ProcessRates> processes_{{.busy = 0, .p2p_operations = 10, .p2p_busy = {}}};
  UsualTimes usual_;
};

TEST_F(UsualTimesTest, IsTheMedianForOneSend) {
  for (const double busy : {0.2, 5.0, 0.3}) Record(0, 1, busy);
  processes_[0].p2p_operations = 5;
  EXPECT_DOUBLE_EQ(Exceeding(1, 0.5).value(), 0.5 - 0.15);
}

TEST_F(UsualTimesTest, ARankWithoutAPastIsNotCompared) {
  Record(0, 1, 0.2);
  EXPECT_FALSE(Exceeding(2, 0.5).has_value());
}

// A forged segment may change the number of a rank again and again.
TEST_F(UsualTimesTest, ARankThatIsGoneIsForgotten) {
  Record(0, 1, 0.2);
  Record(kMost - 1, 2, 0.2);
  EXPECT_TRUE(Exceeding(1, 0.5).has_value());
  Record(kMost, 2, 0.2);
  EXPECT_FALSE(Exceeding(1, 0.5).has_value());
}

}  // namespace
}  // namespace nccl_exporter::exporter
