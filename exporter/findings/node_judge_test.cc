// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/node_judge.h"

#include <gtest/gtest.h>

namespace nccl_exporter::exporter {
namespace {

collector::SegmentTrouble TroubleOf(uint64_t uid, int64_t realtime_ns) {
  collector::SegmentTrouble trouble;
  trouble.error = collector::SegmentError::kBadMagic;
  trouble.uid = trouble.file_uid = uid;
  trouble.present = 1;
  trouble.realtime_ns = realtime_ns;
  return trouble;
}

TEST(NodeJudgeTest, AUserWithManyFindingsDoesNotHideThoseOfAnother) {
  collector::NodeSnapshot node;
  for (int64_t i = 1; i <= 100; ++i) node.segment_troubles.push_back(TroubleOf(1001, i));
  node.segment_troubles.push_back(TroubleOf(1002, 1000));
  const Judgement judgement = NodeJudge().Judge(node);
  ASSERT_EQ(judgement.findings.size(), kMostFindingsPerUser + 1);
  EXPECT_EQ(judgement.findings[0].uid, 1001u);
  EXPECT_EQ(judgement.findings[1].uid, 1002u);
  EXPECT_EQ(judgement.left_out, 100 - kMostFindingsPerUser);
}

}  // namespace
}  // namespace nccl_exporter::exporter
