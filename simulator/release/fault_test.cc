// SPDX-License-Identifier: Apache-2.0
#include "simulator/release/fault.h"

#include <gtest/gtest.h>

namespace nccl_exporter::sim {
namespace {

constexpr Release k230(23007);
constexpr Release k231(23102);

TEST(Faults, TakeTheirParametersFromTheText) {
  Faults faults;
  EXPECT_EQ(faults.Add("jump:by=-300,every=1000", k230), "");
  EXPECT_EQ(faults.JumpNs(999), 0);
  EXPECT_EQ(faults.JumpNs(2500), -600);
  EXPECT_EQ(faults.Add("zero:every=3", k230), "");
  EXPECT_FALSE(faults.StrikesEvery(Fault::kZero, 4));
  EXPECT_TRUE(faults.StrikesEvery(Fault::kZero, 6));
  EXPECT_TRUE(faults.IsEvenStrike(Fault::kZero, 6));
  EXPECT_FALSE(faults.IsEvenStrike(Fault::kZero, 9));
}

TEST(Faults, HoldUpThePollingThread) {
  Faults faults;
  EXPECT_EQ(faults.PolledNs(120), 120);
  EXPECT_EQ(faults.Add("ring-overrun:late=30,every=100", k230), "");
  EXPECT_EQ(faults.PolledNs(120), 130);
  EXPECT_EQ(faults.PolledNs(131), 131);
}

TEST(Faults, RefuseWhatTheyDoNotKnow) {
  Faults faults;
  EXPECT_EQ(faults.Add("drift", k230), "--fault drift: there is no such fault");
  EXPECT_EQ(faults.Add("zero:after=3", k230), "--fault zero has no parameter after");
  EXPECT_EQ(faults.Add("zero:every=0", k230), "--fault zero: bad every=0");
  EXPECT_EQ(faults.Add("zero:every", k230), "--fault zero: bad every");
  EXPECT_FALSE(faults.Any());
}

TEST(Faults, RefuseAReleaseThatDoesNotHaveThem) {
  Faults faults;
  EXPECT_EQ(faults.Add("drift-self-send", k231),
            "--fault drift-self-send: NCCL 23102 does not have it");
  EXPECT_EQ(faults.Add("drift-broadcast", k231), "");
  EXPECT_EQ(faults.Add("drift-broadcast", Release(23206)), "");
  EXPECT_EQ(faults.Add("drift-broadcast", Release(22809)),
            "--fault drift-broadcast: NCCL 22809 does not have it");
  EXPECT_EQ(faults.Names(), std::vector<std::string_view>{"drift-broadcast"});
}

TEST(Faults, AreAllInTheHelp) {
  const std::string help = FaultHelp();
  for (size_t i = 0; i < kCountOf<Fault>; ++i) {
    EXPECT_NE(help.find("  " + std::string(TraitsOf(static_cast<Fault>(i)).name)),
              std::string::npos);
  }
}

}  // namespace
}  // namespace nccl_exporter::sim
