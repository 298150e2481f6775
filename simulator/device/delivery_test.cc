// SPDX-License-Identifier: Apache-2.0
#include "simulator/device/delivery.h"

#include <gtest/gtest.h>

namespace nccl_exporter::sim {
namespace {

class DeliveryTest : public testing::Test {
 protected:
  std::atomic<bool> stop_asked_ = false;
  Pace pace_{false, stop_asked_};
  std::vector<int64_t> delivered_;  // written by the delivering thread only
  Delivery::Action note_ = [this](int64_t due_ns) { delivered_.push_back(due_ns); };
};

TEST_F(DeliveryTest, DeliversInTheOrderOfTimes) {
  {
    Delivery delivery(pace_, [] {});
    delivery.SetHorizon(-Delivery::kMostAheadNs);  // nothing goes out before everything is posted
    for (const int64_t due_ns : {30, 10, 20, 40}) delivery.Post(due_ns, note_);
  }
  EXPECT_EQ(delivered_, (std::vector<int64_t>{10, 20, 30, 40}));
}

TEST_F(DeliveryTest, DoesNotRunAheadOfItsCallerByMoreThanALittle) {
  Delivery delivery(pace_, [] {});
  const int64_t far_ns = 100 * Delivery::kMostAheadNs;
  delivery.Post(1, note_);
  delivery.Post(far_ns, note_);
  delivery.WaitDelivered(1);
  delivery.WaitDelivered(far_ns - 1);
  EXPECT_EQ(delivered_, (std::vector<int64_t>{1}));
  EXPECT_EQ(delivery.Drain(0), far_ns);
  EXPECT_EQ(delivered_, (std::vector<int64_t>{1, far_ns}));
}

TEST_F(DeliveryTest, NeverLetsTheTimeOfItsThreadGoBack) {
  Delivery delivery(pace_, [] {});
  delivery.Post(50, [&](int64_t& now_ns) {
    delivery.Post(20, note_);  // late
    now_ns += 5;
  });
  delivery.Post(52, note_);
  EXPECT_EQ(delivery.Drain(0), 55);
  EXPECT_EQ(delivered_, (std::vector<int64_t>{55, 55}));
}

TEST_F(DeliveryTest, WaitsForWhatAnActionPosts) {
  Delivery delivery(pace_, [] {});
  delivery.Post(1, [&](int64_t) { delivery.Post(2, note_); });
  delivery.Drain(0);
  EXPECT_EQ(delivered_, (std::vector<int64_t>{2}));
}

TEST_F(DeliveryTest, PreparesItsThreadFirst) {
  std::thread::id prepared;
  std::thread::id delivering;
  {
    Delivery delivery(pace_, [&] { prepared = std::this_thread::get_id(); });
    delivery.Post(1, [&](int64_t) { delivering = std::this_thread::get_id(); });
  }
  EXPECT_EQ(prepared, delivering);
  EXPECT_NE(prepared, std::this_thread::get_id());
}

}  // namespace
}  // namespace nccl_exporter::sim
