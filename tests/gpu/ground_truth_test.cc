// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/ground_truth.h"

#include <gtest/gtest.h>

namespace nccl_exporter {
namespace {

using nlohmann::json;

TEST(GroundTruth, CountsACallAndItsOperationInTheSizeClassOfTheMessage) {
  GroundTruth truth(AnnouncementsOf(22809), 4);
  truth.Call(Function::kAllReduce, 1024, 4);
  truth.Call(Function::kAllGather, 1024, 4);  // 4 KiB from each of four ranks
  EXPECT_EQ(truth.ToJson(), json::parse(R"({
    "AllReduce": {"calls": 1, "sizes": {"4096": {"operations": 1, "bytes": 4096}}},
    "AllGather": {"calls": 1, "sizes": {"4096": {"operations": 1, "bytes": 16384}}}})"));
}

TEST(GroundTruth, CountsTheBytesOfOneShareWhereTheNumberOfRanksIsUnknown) {
  GroundTruth truth(AnnouncementsOf(22605), 4);
  truth.Call(Function::kReduceScatter, 256, 4);
  EXPECT_EQ(
      truth.ToJson(),
      json::parse(
          R"({"ReduceScatter": {"calls": 0, "sizes": {"0": {"operations": 1, "bytes": 1024}}}})"));
}

TEST(GroundTruth, CountsCallsOfBroadcastButNoOperationsFrom229On) {
  GroundTruth before(AnnouncementsOf(22809), 2), after(AnnouncementsOf(22902), 2);
  before.Call(Function::kBroadcast, 8, 1);
  after.Call(Function::kBroadcast, 8, 1);
  EXPECT_EQ(before.ToJson()["Broadcast"]["sizes"]["0"]["operations"], 1);
  EXPECT_EQ(after.ToJson(), json::parse(R"({"Broadcast": {"calls": 1, "sizes": {}}})"));
}

TEST(GroundTruth, CountsACaptureOnceAsCallsAndAtEachReplayAsOperations) {
  GroundTruth truth(AnnouncementsOf(22809), 2);
  truth.BeginCapture();
  truth.Call(Function::kAllReduce, 2, 4);
  truth.Call(Function::kSend, 2, 4);
  truth.EndCapture();
  EXPECT_TRUE(truth.ToJson()["AllReduce"]["sizes"].empty());
  for (int replay = 0; replay < 3; ++replay) truth.Replay();
  truth.Call(Function::kAllReduce, 2, 4);
  EXPECT_EQ(truth.ToJson()["AllReduce"],
            json::parse(R"({"calls": 2, "sizes": {"0": {"operations": 4, "bytes": 32}}})"));
  EXPECT_EQ(truth.ToJson()["Send"],
            json::parse(R"({"calls": 1, "sizes": {"0": {"operations": 3, "bytes": 24}}})"));
}

TEST(GroundTruth, ForgetsTheFormerGraphWhenAnotherIsCaptured) {
  GroundTruth truth(AnnouncementsOf(22809), 2);
  truth.BeginCapture();
  truth.Call(Function::kAllReduce, 2, 4);
  truth.EndCapture();
  truth.BeginCapture();
  truth.Call(Function::kReduce, 2, 4);
  truth.EndCapture();
  truth.Replay();
  EXPECT_TRUE(truth.ToJson()["AllReduce"]["sizes"].empty());
  EXPECT_EQ(truth.ToJson()["Reduce"]["sizes"]["0"]["operations"], 1);
}

TEST(GroundTruth, LeavesOutWhatNcclDropsAndWhatStaysOnOneRank) {
  GroundTruth several(AnnouncementsOf(22809), 2), alone(AnnouncementsOf(22809), 1);
  several.Call(Function::kAllReduce, 0, 4);
  alone.Call(Function::kAllReduce, 8, 4);
  EXPECT_TRUE(several.ToJson().empty());
  EXPECT_TRUE(alone.ToJson().empty());
}

TEST(AnnouncementsTest, FollowTheRelease) {
  EXPECT_EQ(AnnouncementsOf(22304).api_version, 1);
  EXPECT_EQ(AnnouncementsOf(22501).api_version, 2);
  EXPECT_EQ(AnnouncementsOf(22606).api_version, 3);
  EXPECT_EQ(AnnouncementsOf(22703).api_version, 4);
  EXPECT_EQ(AnnouncementsOf(22809).api_version, 5);
  EXPECT_EQ(AnnouncementsOf(23007).api_version, 6);
  EXPECT_EQ(AnnouncementsOf(23102).api_version, 7);
  EXPECT_FALSE(AnnouncementsOf(22703).calls);
  EXPECT_TRUE(AnnouncementsOf(22703).communicator);
  EXPECT_FALSE(AnnouncementsOf(22606).communicator);
}

}  // namespace
}  // namespace nccl_exporter
