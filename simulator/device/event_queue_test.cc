// SPDX-License-Identifier: Apache-2.0
#include "simulator/device/event_queue.h"

#include <gtest/gtest.h>

namespace nccl_exporter::sim {
namespace {

class DeliveryTest : public testing::Test {
 protected:
  std::atomic<bool> stop_asked_ = false;
  ClockMode clock_mode_{false, stop_asked_};
  std::vector<int64_t> delivered_;  // written by the delivering thread only
  EventQueue::Action note_ = [this](int64_t due_ns) { delivered_.push_back(due_ns); };
};

TEST_F(DeliveryTest, DeliversInTheOrderOfTimes) {
  {
    EventQueue queue(clock_mode_, [] {});
    queue.SetHorizon(-EventQueue::kMostAheadNs);  // nothing goes out before everything is posted
    for (const int64_t due_ns : {30, 10, 20, 40}) queue.Post(due_ns, note_);
  }
  EXPECT_EQ(delivered_, (std::vector<int64_t>{10, 20, 30, 40}));
}

TEST_F(DeliveryTest, DoesNotRunAheadOfItsCallerByMoreThanALittle) {
  EventQueue queue(clock_mode_, [] {});
  const int64_t far_ns = 100 * EventQueue::kMostAheadNs;
  queue.Post(1, note_);
  queue.Post(far_ns, note_);
  queue.WaitDelivered(1);
  queue.WaitDelivered(far_ns - 1);
  EXPECT_EQ(delivered_, (std::vector<int64_t>{1}));
  EXPECT_EQ(queue.Drain(0), far_ns);
  EXPECT_EQ(delivered_, (std::vector<int64_t>{1, far_ns}));
}

TEST_F(DeliveryTest, NeverLetsTheTimeOfItsThreadGoBack) {
  EventQueue queue(clock_mode_, [] {});
  queue.Post(50, [&](int64_t& now_ns) {
    queue.Post(20, note_);  // late
    now_ns += 5;
  });
  queue.Post(52, note_);
  EXPECT_EQ(queue.Drain(0), 55);
  EXPECT_EQ(delivered_, (std::vector<int64_t>{55, 55}));
}

TEST_F(DeliveryTest, WaitsForWhatAnActionPosts) {
  EventQueue queue(clock_mode_, [] {});
  queue.Post(1, [&](int64_t) { queue.Post(2, note_); });
  queue.Drain(0);
  EXPECT_EQ(delivered_, (std::vector<int64_t>{2}));
}

TEST_F(DeliveryTest, PreparesItsThreadFirst) {
  std::thread::id prepared;
  std::thread::id delivering;
  {
    EventQueue queue(clock_mode_, [&] { prepared = std::this_thread::get_id(); });
    queue.Post(1, [&](int64_t) { delivering = std::this_thread::get_id(); });
  }
  EXPECT_EQ(prepared, delivering);
  EXPECT_NE(prepared, std::this_thread::get_id());
}

}  // namespace
}  // namespace nccl_exporter::sim
