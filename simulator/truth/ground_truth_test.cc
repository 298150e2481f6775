// SPDX-License-Identifier: Apache-2.0
#include "simulator/truth/ground_truth.h"

#include <gtest/gtest.h>

namespace nccl_exporter::sim {
namespace {

constexpr uint64_t kMiB = 1048576;

LaunchMember MemberOf(Function function, uint64_t bytes, uint64_t start_ns, uint64_t stop_ns) {
  return {.function = function,
          .bytes = bytes,
          .shows_its_end = true,
          .interval = Interval{start_ns, stop_ns}};
}

int DurationBucket(uint64_t ns) { return BucketOf(ns, 1e9L, -160, 80); }

TEST(BucketOf, CountsABoundInItsOwnBucket) {
  // 2^-10 s is 976562.5 ns, native bucket -80, the 81st of those that begin with -160.
  EXPECT_EQ(DurationBucket(976562), 80);
  EXPECT_EQ(DurationBucket(976563), 81);
  EXPECT_EQ(DurationBucket(1000000000), 160);
  EXPECT_EQ(DurationBucket(1000000001), 161);
}

TEST(BucketOf, HasABucketBelowAndAbove) {
  EXPECT_EQ(DurationBucket(0), 0);
  EXPECT_EQ(DurationBucket(953), 0);  // 2^-20 s is 953.67 ns
  EXPECT_EQ(DurationBucket(954), 1);
  EXPECT_EQ(DurationBucket(1024000000000), 240);
  EXPECT_EQ(DurationBucket(1024000000001), 241);
}

TEST(BusBytesPerSecond, FollowsNcclTests) {
  EXPECT_EQ(BusBytesPerSecond(Function::kAllReduce, 1000, 4, 1000), 1500000000u);
  EXPECT_EQ(BusBytesPerSecond(Function::kAllGather, 1000, 4, 1000), 750000000u);
  EXPECT_EQ(BusBytesPerSecond(Function::kReduceScatter, 1000, 3, 1000), 666666666u);
  EXPECT_EQ(BusBytesPerSecond(Function::kBroadcast, 1000, 4, 1000), 1000000000u);
  EXPECT_EQ(BusBytesPerSecond(Function::kSend, 1000, 4, 1000), 0u);
  EXPECT_EQ(BusBytesPerSecond(Function::kAllReduce, 1000, 4, 0), 0u);
}

TEST(BusBytesPerSecond, NeedsTheNumberOfRanksWhereTheFactorDoes) {
  EXPECT_EQ(BusBytesPerSecond(Function::kAllReduce, 1000, 0, 1000), 0u);
  EXPECT_EQ(BusBytesPerSecond(Function::kReduce, 1000, 0, 1000), 1000000000u);
}

constexpr Release kRelease(23007);

TEST(GroundTruth, GivesALoneOperationItsOwnInterval) {
  GroundTruth truth(8, kRelease);
  truth.AddOperation(Function::kAllReduce, 2 * kMiB);
  truth.CompleteLaunch({MemberOf(Function::kAllReduce, 2 * kMiB, 5000, 25000)});
  const FunctionCounts counts = truth.Counts().at(Function::kAllReduce);
  const SizeCounts& size = counts.sizes.at(kMiB);
  EXPECT_EQ(size.operations, 1u);
  EXPECT_EQ(size.timed_bytes, 2 * kMiB);
  EXPECT_EQ(size.busy_ns, 20000u);
  EXPECT_EQ(counts.completed, 1u);
  EXPECT_EQ(counts.bandwidth.size(), 1u);
  // 2 MiB * 2 * 7/8 in 20 us
  EXPECT_EQ(counts.bandwidth_sum, 183500800000.0);
  EXPECT_EQ(counts.bandwidth_sum_kib, 179200000u);
}

TEST(GroundTruth, SharesTheTimeOfALaunchByBytes) {
  GroundTruth truth(8, kRelease);
  truth.CompleteLaunch({MemberOf(Function::kAllReduce, 1000, 0, 900),
                        MemberOf(Function::kAllGather, 2000, 100, 1000)});
  EXPECT_EQ(truth.Counts().at(Function::kAllReduce).duration_sum_ns, 333u);
  EXPECT_EQ(truth.Counts().at(Function::kAllGather).duration_sum_ns, 666u);
}

TEST(GroundTruth, KeepsSendsReceivesAndCollectivesOfALaunchApart) {
  GroundTruth truth(8, kRelease);
  truth.CompleteLaunch({MemberOf(Function::kSend, 100, 0, 10),
                        MemberOf(Function::kRecv, 100, 0, 40),
                        MemberOf(Function::kAllReduce, 0, 0, 70)});
  EXPECT_EQ(truth.Counts().at(Function::kSend).duration_sum_ns, 10u);
  EXPECT_EQ(truth.Counts().at(Function::kRecv).duration_sum_ns, 40u);
  EXPECT_EQ(truth.Counts().at(Function::kAllReduce).duration_sum_ns, 70u);
}

TEST(GroundTruth, LeavesMembersWithoutAnIntervalOut) {
  GroundTruth truth(8, kRelease);
  truth.CompleteLaunch(
      {MemberOf(Function::kSend, 100, 0, 10), {.function = Function::kSend, .bytes = 300}});
  const FunctionCounts counts = truth.Counts().at(Function::kSend);
  EXPECT_EQ(counts.duration_sum_ns, 10u);
  EXPECT_EQ(counts.completed, 1u);
  EXPECT_EQ(counts.sizes.at(0).timed_operations, 1u);
}

TEST(GroundTruth, HasNoBandwidthForSharedOrSmallOperations) {
  GroundTruth truth(8, kRelease);
  truth.CompleteLaunch({MemberOf(Function::kAllReduce, kMiB - 1, 0, 10000)});
  truth.CompleteLaunch({MemberOf(Function::kAllReduce, kMiB, 0, 10000),
                        MemberOf(Function::kReduce, kMiB, 0, 10000)});
  EXPECT_TRUE(truth.Counts().at(Function::kAllReduce).bandwidth.empty());
  truth.CompleteLaunch({MemberOf(Function::kAllReduce, kMiB, 0, 10000)});
  EXPECT_EQ(truth.Counts().at(Function::kAllReduce).bandwidth.size(), 1u);
}

TEST(GroundTruth, SortsOperationsIntoSizeClasses) {
  GroundTruth truth(8, kRelease);
  for (const uint64_t bytes : {0ul, 4095ul, 4096ul, 268435456ul})
    truth.AddOperation(Function::kReduce, bytes);
  const auto sizes = truth.Counts().at(Function::kReduce).sizes;
  EXPECT_EQ(sizes.at(0).operations, 2u);
  EXPECT_EQ(sizes.at(4096).operations, 1u);
  EXPECT_EQ(sizes.at(268435456).bytes, 268435456u);
}

}  // namespace
}  // namespace nccl_exporter::sim
