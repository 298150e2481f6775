// SPDX-License-Identifier: Apache-2.0
#include "collector/arrivals/fastest_deliveries.h"

#include <gtest/gtest.h>

#include <random>

namespace nccl_exporter::collector {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kBoot = 5'000 * kSecond;           // CLOCK_MONOTONIC at time 0
constexpr int64_t kEpoch = 1'700'000'000 * kSecond;  // the GPU's clock then
constexpr int64_t kFastest = 8'000;

class FastestDeliveriesTest : public testing::Test {
 protected:
  int64_t TrueDistance(int64_t at_ns) const {
    return kBoot - kEpoch - set_by_ns_ - static_cast<int64_t>(static_cast<double>(at_ns) * drift_);
  }
  // One end at that time, delivered `late_ns` later than the fastest one.
  void Deliver(int64_t at_ns, int64_t late_ns) {
    deliveries_.Learn(static_cast<uint64_t>(kBoot + at_ns - TrueDistance(at_ns)),
                      static_cast<uint64_t>(kBoot + at_ns + kFastest + late_ns));
  }
  // Ends every `period_ns`; one in four deliveries is close to the fastest, the others take up to 2
  // ms.
  int64_t DeliverFor(int64_t from_ns, int64_t duration_ns, int64_t period_ns) {
    int64_t at_ns = from_ns;
    for (; at_ns < from_ns + duration_ns; at_ns += period_ns) {
      Deliver(at_ns, static_cast<int64_t>(random_() % (random_() % 4 == 0 ? 4'000 : 2'000'000)));
    }
    return at_ns;
  }
  void ExpectTrueWithin(int64_t at_ns, double within_ns) const {
    const auto estimate = deliveries_.At(static_cast<uint64_t>(kBoot + at_ns));
    ASSERT_TRUE(estimate);
    EXPECT_NEAR(static_cast<double>(estimate->distance_ns - TrueDistance(at_ns) - kFastest), 0,
                within_ns);
    EXPECT_LT(estimate->uncertainty_ns, static_cast<int64_t>(within_ns));
  }

  FastestDeliveries deliveries_;
  double drift_ = 50e-6;
  int64_t set_by_ns_ = 0;
  std::mt19937_64 random_{1};
};

TEST_F(FastestDeliveriesTest, SayNothingBeforeThereAreEnough) {
  DeliverFor(0, kSecond / 20, 1'000'000);
  EXPECT_FALSE(deliveries_.At(static_cast<uint64_t>(kBoot)));
}

TEST_F(FastestDeliveriesTest, FollowTheClockBehindLateDeliveriesAndDrift) {
  int64_t at_ns = DeliverFor(0, kSecond / 2, 1'000'000);
  ExpectTrueWithin(at_ns, 20'000);
  at_ns = DeliverFor(at_ns, 200 * kSecond, 1'000'000);
  ExpectTrueWithin(at_ns, 5'000);
}

TEST_F(FastestDeliveriesTest, OfAJobWithOneOperationASecondCountToo) {
  drift_ = -50e-6;
  const int64_t at_ns = DeliverFor(0, 400 * kSecond, kSecond);
  ExpectTrueWithin(at_ns, 30'000);
}

TEST_F(FastestDeliveriesTest, ThatAllTakeLongAreAsUncertainAsTheyDiffer) {
  int64_t at_ns = 0;
  for (; at_ns < 2 * kSecond; at_ns += 2'000'000)
    Deliver(at_ns, static_cast<int64_t>(random_() % 50'000'000));
  const auto estimate = deliveries_.At(static_cast<uint64_t>(kBoot + at_ns));
  ASSERT_TRUE(estimate);
  EXPECT_GT(estimate->uncertainty_ns, 500'000);
}

TEST_F(FastestDeliveriesTest, ThatMakeNoSenseAreNoEstimate) {
  for (int64_t i = 0; i < 64; ++i) Deliver(i * 10'000'000, i / 8 * 2 * kSecond);
  EXPECT_FALSE(deliveries_.At(static_cast<uint64_t>(kBoot + 15 * kSecond)));
}

TEST_F(FastestDeliveriesTest, AreMoreUncertainTheOlderTheyAre) {
  const int64_t at_ns = DeliverFor(0, 10 * kSecond, 1'000'000);
  const auto now = deliveries_.At(static_cast<uint64_t>(kBoot + at_ns));
  const auto later = deliveries_.At(static_cast<uint64_t>(kBoot + at_ns + 100 * kSecond));
  ASSERT_TRUE(now && later);
  EXPECT_NEAR(static_cast<double>(later->uncertainty_ns - now->uncertainty_ns), 100'000, 200);
  EXPECT_FALSE(deliveries_.At(static_cast<uint64_t>(kBoot + at_ns + 400 * kSecond)));
}

TEST_F(FastestDeliveriesTest, OfAClockThatIsSetBeginAnew) {
  int64_t at_ns = 0;
  for (const int64_t by_ns : {kSecond, -kSecond}) {
    at_ns = DeliverFor(at_ns, 10 * kSecond, 1'000'000);
    set_by_ns_ += by_ns;
    at_ns = DeliverFor(at_ns, kSecond * 2, 1'000'000);
    ExpectTrueWithin(at_ns, 20'000);
  }
}

TEST_F(FastestDeliveriesTest, AnyNumbersAreTaken) {
  constexpr uint64_t kNumbers[] = {0, 1, uint64_t{1} << 62, uint64_t{1} << 63, UINT64_MAX};
  for (int i = 0; i < 1000; ++i) {
    deliveries_.Learn(kNumbers[random_() % 5], kNumbers[random_() % 5] + random_() % 3);
    const auto estimate = deliveries_.At(kNumbers[random_() % 5]);
    EXPECT_GE(estimate ? estimate->uncertainty_ns : 0, 0);
  }
}

}  // namespace
}  // namespace nccl_exporter::collector
