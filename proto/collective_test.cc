// SPDX-License-Identifier: Apache-2.0
#include "proto/collective.h"

#include <gtest/gtest.h>

namespace nccl_exporter {
namespace {

TEST(MessageBytes, FollowNcclTests) {
  EXPECT_EQ(MessageBytes(Function::kAllReduce, 100, 4, 8), 400u);
  EXPECT_EQ(MessageBytes(Function::kBroadcast, 100, 4, 8), 400u);
  EXPECT_EQ(MessageBytes(Function::kReduce, 100, 4, 8), 400u);
  EXPECT_EQ(MessageBytes(Function::kSend, 100, 4, 8), 400u);
  EXPECT_EQ(MessageBytes(Function::kAllGather, 100, 4, 8), 3200u);
  EXPECT_EQ(MessageBytes(Function::kReduceScatter, 100, 4, 8), 3200u);
  EXPECT_EQ(MessageBytes(Function::kAlltoAll, 100, 4, 8), 3200u);
}

TEST(MessageBytes, AreOneRanksShareWhereTheNumberOfRanksIsNotKnown) {
  EXPECT_EQ(MessageBytes(Function::kAllGather, 100, 4, 0), 400u);
}

TEST(BusBytes, FollowNcclTests) {
  EXPECT_DOUBLE_EQ(BusBytes(Function::kAllReduce, 800, 8), 1400.0);
  EXPECT_DOUBLE_EQ(BusBytes(Function::kAllGather, 800, 8), 700.0);
  EXPECT_DOUBLE_EQ(BusBytes(Function::kReduceScatter, 800, 2), 400.0);
  EXPECT_DOUBLE_EQ(BusBytes(Function::kBroadcast, 800, 8), 800.0);
  EXPECT_DOUBLE_EQ(BusBytes(Function::kSend, 800, 0), 800.0);
  EXPECT_DOUBLE_EQ(BusBytes(Function::kAllReduce, 800, 0), 0.0);
  EXPECT_DOUBLE_EQ(BusBytes(Function::kOther, 800, 8), 0.0);
}

TEST(BusBandwidth, IsWholeBytesPerSecond) {
  EXPECT_EQ(BusBandwidth(Function::kBroadcast, 1000, 8, 1'000'000'000), 1000u);
  EXPECT_EQ(BusBandwidth(Function::kBroadcast, 1, 8, 3'000'000'000), 0u);
  EXPECT_EQ(BusBandwidth(Function::kAllReduce, 1 << 20, 2, 1000), 1048576000000u);
  EXPECT_EQ(BusBandwidth(Function::kAllReduce, 1 << 20, 2, 0), 0u);
  EXPECT_EQ(BusBandwidth(Function::kBroadcast, ~uint64_t{0}, 2, 1), 9000000000000000000u);
}

TEST(SizeClass, BeginsAtItsBound) {
  for (int i = 0; i < kSizeClassCount; ++i) {
    EXPECT_EQ(SizeClassOf(kSizeClassBounds[i]), i);
    if (i > 0) {
      EXPECT_EQ(SizeClassOf(kSizeClassBounds[i] - 1), i - 1);
    }
  }
  EXPECT_EQ(SizeClassOf(~uint64_t{0}), kSizeClassCount - 1);
}

TEST(Names, AreFoundAgain) {
  for (int i = 0; i < kFunctionCount; ++i)
    EXPECT_EQ(FunctionByName(kFunctions[i].name), static_cast<Function>(i));
  EXPECT_EQ(FunctionByName("SomethingNew"), Function::kOther);
}

}  // namespace
}  // namespace nccl_exporter
