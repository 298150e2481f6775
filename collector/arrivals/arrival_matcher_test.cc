// SPDX-License-Identifier: Apache-2.0
#include "collector/arrivals/arrival_matcher.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace nccl_exporter::collector {
namespace {

using Member = ArrivalMatcher::Member;

constexpr uint64_t kMicrosecond = 1000;
constexpr uint64_t kMillisecond = 1'000'000;
constexpr uint64_t kBoot = 5'000'000'000'000;  // CLOCK_MONOTONIC when time 0 was

// Operations that the ranks of a node complete, by a clock that is common to all; each GPU shows
// another time.
class ArrivalMatcherTest : public testing::Test {
 protected:
  static CommunicatorKey Key(uint64_t id, const std::string& job = "") {
    return {.id = id, .ranks = 8, .uid = 1000, .job = job, .name_space = ""};
  }
  Member* Add(uint64_t rank, const CommunicatorKey& key = Key(7), bool has_kernel_times = true) {
    Member* member = matcher_.Add({.communicator = key,
                                   .rank = rank,
                                   .has_kernel_times = has_kernel_times,
                                   .call_is_bound = true});
    gpu_epoch_[member] = 1'700'000'000'000'000'000 + rank * 3 * kMillisecond;
    return member;
  }

  // Its kernel starts at `start_ns` and ends at `stop_ns`; called 10 us before, delivered 10 us
  // after.
  CompletedOperation Operation(Member* member, uint64_t sequence, uint64_t start_ns,
                               uint64_t stop_ns) {
    return {.function_and_sequence = static_cast<uint64_t>(Function::kAllReduce) << 56 | sequence,
            .call_ns = kBoot + start_ns - 10 * kMicrosecond,
            .start_ns = gpu_epoch_[member] + start_ns,
            .stop_ns = gpu_epoch_[member] + stop_ns,
            .delivered_ns = kBoot + stop_ns + 10 * kMicrosecond};
  }
  void Complete(Member* member, uint64_t sequence, uint64_t start_ns, uint64_t stop_ns) {
    matcher_.Take(member, Operation(member, sequence, start_ns, stop_ns), stop_ns);
  }
  uint64_t Uncompared(Uncompared cause) const {
    return matcher_.uncompared()[static_cast<size_t>(cause)];
  }
  uint64_t AllUncompared() const {
    uint64_t sum = 0;
    for (const uint64_t count : matcher_.uncompared()) sum += count;
    return sum;
  }
  static void ExpectCounts(const Member* member, uint64_t compared, uint64_t last,
                           uint64_t lateness_us) {
    EXPECT_EQ(member->counts.compared, compared);
    EXPECT_EQ(member->counts.last, last);
    EXPECT_EQ(member->counts.lateness_ns, lateness_us * kMicrosecond);
  }

  ArrivalMatcher matcher_;
  std::map<Member*, uint64_t> gpu_epoch_;
};

TEST_F(ArrivalMatcherTest, NamesTheRankThatEntersLast) {
  Member* first = Add(0);
  Member* second = Add(1);
  Member* third = Add(2);
  for (uint64_t i = 0; i < 10; ++i) {
    const uint64_t at_ns = (1 + 5 * i) * kMillisecond;
    Complete(second, i, at_ns, at_ns + kMillisecond);
    Complete(first, i, at_ns + 200 * kMicrosecond, at_ns + kMillisecond);
    Complete(third, i, at_ns + 700 * kMicrosecond, at_ns + kMillisecond);
  }
  ExpectCounts(first, 10, 0, 2000);
  ExpectCounts(second, 10, 0, 0);
  ExpectCounts(third, 10, 10, 7000);
  EXPECT_EQ(AllUncompared(), 0u);
}

TEST_F(ArrivalMatcherTest, ARankIsLateByMoreThanRanksMayLeaveApart) {
  Member* first = Add(0);
  Member* second = Add(1);
  // The shortest kernel takes 800 us, so ranks may leave within 110 us.
  Complete(first, 0, 1 * kMillisecond, 1910 * kMicrosecond);
  Complete(second, 0, 1110 * kMicrosecond, 1910 * kMicrosecond);
  ExpectCounts(first, 0, 0, 0);
  ExpectCounts(second, 0, 0, 0);
  EXPECT_EQ(Uncompared(Uncompared::kTogether), 2u);
  Complete(first, 1, 3 * kMillisecond, 3911 * kMicrosecond);
  Complete(second, 1, 3111 * kMicrosecond, 3911 * kMicrosecond);
  ExpectCounts(first, 1, 0, 0);
  ExpectCounts(second, 1, 1, 111);
}

TEST_F(ArrivalMatcherTest, NamesNobodyWhereTwoAreLateTogether) {
  Member* first = Add(0);
  Member* second = Add(1);
  Member* third = Add(2);
  Complete(first, 0, 1 * kMillisecond, 4 * kMillisecond);
  Complete(second, 0, 2 * kMillisecond, 4 * kMillisecond);
  Complete(third, 0, 2 * kMillisecond + 3 * kMicrosecond, 4 * kMillisecond);
  ExpectCounts(first, 1, 0, 0);
  ExpectCounts(second, 1, 0, 1000);
  ExpectCounts(third, 1, 0, 1003);
}

TEST_F(ArrivalMatcherTest, OperationsOfOneLaunchShareItsLateness) {
  Member* first = Add(0);
  Member* second = Add(1);
  for (uint64_t i = 0; i < 4; ++i) {
    for (Member* member : {first, second}) {
      const uint64_t start_ns = (member == first ? 1 : 2) * kMillisecond;
      CompletedOperation operation = Operation(member, i, start_ns, 4 * kMillisecond);
      operation.members = 4;
      matcher_.Take(member, operation, 0);
    }
  }
  ExpectCounts(second, 4, 4, 1000);
}

TEST_F(ArrivalMatcherTest, ARankAloneOnTheNodeIsNotCompared) {
  Member* member = Add(0);
  EXPECT_FALSE(member->IsComparable());
  Complete(member, 0, 1 * kMillisecond, 2 * kMillisecond);
  matcher_.CountLost(member, 5);
  ExpectCounts(member, 0, 0, 0);
  EXPECT_EQ(AllUncompared(), 0u);
}

TEST_F(ArrivalMatcherTest, CommunicatorsThatShareRanksAreKeptApart) {
  Member* world[] = {Add(0, Key(7)), Add(1, Key(7))};
  Member* split[] = {Add(0, Key(8)), Add(1, Key(8))};
  Complete(world[0], 3, 1 * kMillisecond, 4 * kMillisecond);
  Complete(split[1], 3, 2 * kMillisecond, 4 * kMillisecond);
  EXPECT_EQ(split[1]->counts.compared, 0u);
  Complete(world[1], 3, 3 * kMillisecond, 4 * kMillisecond);
  Complete(split[0], 3, 1 * kMillisecond, 4 * kMillisecond);
  ExpectCounts(world[1], 1, 1, 2000);
  ExpectCounts(split[1], 1, 1, 1000);
}

TEST_F(ArrivalMatcherTest, JobsWithTheSameCommunicatorIdAreKeptApart) {
  Member* first[] = {Add(0, Key(7, "first")), Add(1, Key(7, "first"))};
  Member* second[] = {Add(0, Key(7, "second")), Add(1, Key(7, "second"))};
  Complete(first[0], 0, 1 * kMillisecond, 4 * kMillisecond);
  Complete(second[1], 0, 3 * kMillisecond, 4 * kMillisecond);
  EXPECT_EQ(second[1]->counts.compared, 0u);
  Complete(first[1], 0, 2 * kMillisecond, 4 * kMillisecond);
  ExpectCounts(first[1], 1, 1, 1000);
  ExpectCounts(second[0], 0, 0, 0);
}

TEST_F(ArrivalMatcherTest, WhatCannotBeToldApartIsNotCompared) {
  Member* one[] = {Add(0), Add(1)};
  Member* other[] = {Add(0), Add(1)};
  Complete(one[0], 0, 1 * kMillisecond, 4 * kMillisecond);
  Complete(other[1], 0, 2 * kMillisecond, 4 * kMillisecond);
  EXPECT_EQ(Uncompared(Uncompared::kRankTwice), 2u);
  matcher_.Remove(other[0]);
  matcher_.Remove(other[1]);
  Complete(one[0], 1, 11 * kMillisecond, 14 * kMillisecond);
  Complete(one[1], 1, 12 * kMillisecond, 14 * kMillisecond);
  ExpectCounts(one[1], 1, 1, 1000);
}

TEST_F(ArrivalMatcherTest, AnOperationThatAPartnerLacksIsGivenUpAfterAWhile) {
  Member* first = Add(0);
  Add(1);
  Complete(first, 0, 1 * kMillisecond, 2 * kMillisecond);
  matcher_.Expire(2 * kMillisecond + kPartnerPatienceNs);
  EXPECT_EQ(AllUncompared(), 0u);
  matcher_.Expire(2 * kMillisecond + kPartnerPatienceNs + 1);
  EXPECT_EQ(Uncompared(Uncompared::kPartnerMissing), 1u);
  matcher_.Expire(3 * kPartnerPatienceNs);
  EXPECT_EQ(AllUncompared(), 1u) << "once";
}

TEST_F(ArrivalMatcherTest, NoMoreThanTheLimitWaits) {
  Member* first = Add(0);
  Add(1);
  for (uint64_t i = 0; i <= kMaxWaitingOperations; ++i)
    Complete(first, i, (i + 1) * kMillisecond, (i + 2) * kMillisecond);
  EXPECT_EQ(Uncompared(Uncompared::kPartnerMissing), kMaxWaitingOperations);
}

TEST_F(ArrivalMatcherTest, APartnerWithoutKernelTimesLeavesNobodyToCompareWith) {
  Member* first = Add(0);
  Member* drifting = Add(1);
  Complete(first, 0, 1 * kMillisecond, 3 * kMillisecond);
  Complete(drifting, 0, 2 * kMillisecond, 3 * kMillisecond);
  matcher_.SetHasKernelTimes(drifting, false);
  EXPECT_FALSE(drifting->IsComparable());
  Complete(first, 1, 11 * kMillisecond, 13 * kMillisecond);
  ExpectCounts(drifting, 1, 1, 1000);
  EXPECT_EQ(Uncompared(Uncompared::kPartnerMissing), 1u);
}

TEST_F(ArrivalMatcherTest, OperationsThatCannotBeTheSameAreNotCompared) {
  Member* first = Add(0);
  Member* second = Add(1);
  Complete(first, 5, 1 * kMillisecond, 2 * kMillisecond);
  Complete(second, 5, 900 * kMillisecond, 901 * kMillisecond);  // it was over long before
  EXPECT_EQ(Uncompared(Uncompared::kMismatch), 2u);
  Complete(first, 6, 1000 * kMillisecond, 1001 * kMillisecond);
  Complete(first, 6, 1100 * kMillisecond, 1101 * kMillisecond);  // the number comes again
  EXPECT_EQ(Uncompared(Uncompared::kMismatch), 3u);
  ExpectCounts(first, 0, 0, 0);
}

TEST_F(ArrivalMatcherTest, OperationsThatDoNotWaitForAllAreNotCompared) {
  Member* root = Add(0);
  Member* leaf = Add(1);
  for (Member* member : {root, leaf}) {
    const uint64_t at_ns = (member == root ? 1 : 20) * kMillisecond;
    CompletedOperation operation = Operation(member, 5, at_ns, at_ns + kMillisecond);
    operation.function_and_sequence = static_cast<uint64_t>(Function::kBroadcast) << 56 | 5;
    matcher_.Take(member, operation, 0);
  }
  ExpectCounts(leaf, 0, 0, 0);
  EXPECT_EQ(Uncompared(Uncompared::kNoCommonEnd), 2u);
}

TEST_F(ArrivalMatcherTest, SendsAndReceivesAreNoCollectives) {
  Member* first = Add(0);
  Member* second = Add(1);
  for (Member* member : {first, second}) {
    CompletedOperation operation =
        Operation(member, 0, (member == first ? 1 : 2) * kMillisecond, 3 * kMillisecond);
    operation.function_and_sequence = static_cast<uint64_t>(Function::kSend) << 56;
    matcher_.Take(member, operation, 0);
  }
  ExpectCounts(second, 0, 0, 0);
  EXPECT_EQ(AllUncompared(), 0u);
}

TEST_F(ArrivalMatcherTest, WhatWaitsIsGivenUpWhenARankComesOrGoes) {
  Member* first = Add(0);
  Member* second = Add(1);
  Complete(first, 0, 1 * kMillisecond, 2 * kMillisecond);
  Member* third = Add(2);
  EXPECT_EQ(Uncompared(Uncompared::kPartnerMissing), 1u);
  Complete(first, 1, 11 * kMillisecond, 12 * kMillisecond);
  matcher_.Remove(third);
  EXPECT_EQ(Uncompared(Uncompared::kPartnerMissing), 2u);
  Complete(second, 0, 21 * kMillisecond, 22 * kMillisecond);
  ExpectCounts(second, 0, 0, 0);
}

// API v4 announces the call after the launch, at any time.
TEST_F(ArrivalMatcherTest, ACallThatIsAnnouncedAfterTheOperationIsNoMismatch) {
  std::vector<Member*> members;
  for (const uint64_t rank : {0, 1}) {
    members.push_back(
        matcher_.Add({.communicator = Key(7), .rank = rank, .has_kernel_times = true}));
  }
  for (Member* member : members) {
    CompletedOperation operation =
        Operation(member, 5, (member->rank.rank + 1) * kMillisecond, 3 * kMillisecond);
    operation.call_ns += 9 * kMillisecond;
    matcher_.Take(member, operation, 0);
  }
  ExpectCounts(members[1], 1, 1, 1000);
}

// A stop before the start, as only a damaged segment has, is a kernel of no length.
TEST_F(ArrivalMatcherTest, AKernelThatStopsBeforeItStartsTookNoTime) {
  Member* first = Add(0);
  Member* damaged = Add(1);
  Complete(first, 0, 1 * kMillisecond, 2 * kMillisecond);
  CompletedOperation operation = Operation(damaged, 0, 1 * kMillisecond, 2 * kMillisecond);
  operation.stop_ns = 0;
  matcher_.Take(damaged, operation, 0);
  ExpectCounts(damaged, 1, 1, 1000);
  ExpectCounts(first, 1, 0, 0);
}

}  // namespace
}  // namespace nccl_exporter::collector
