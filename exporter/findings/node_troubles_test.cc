// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/node_troubles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nccl_exporter::exporter {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;

constexpr int64_t kSecondNs = 1000000000;

TEST(UnusableSegmentsTest, NamesFileOwnerAndError) {
  collector::NodeSnapshot node;
  node.segment_troubles = {{.error = collector::SegmentError::kDirectoryUnreadable,
                            .uid = 1001,
                            .count = 3,
                            .file = "/run/nccl-exporter/jobs\x1b[31m",
                            .file_uid = 1001,
                            .detail = "Permission denied",
                            .realtime_ns = 1700000000 * kSecondNs,
                            .present = 2}};
  const std::vector<Finding> findings = UnusableSegments(node);
  ASSERT_THAT(findings, SizeIs(1));
  const Finding& finding = findings.front();
  EXPECT_EQ(finding.kind, FindingKind::kSegmentsUnusable);
  EXPECT_EQ(finding.severity, Severity::kWarning);
  EXPECT_EQ(finding.uid, 1001u);
  EXPECT_EQ(finding.headline,
            "/run/nccl-exporter/jobs?[31m of user 1001 cannot be used since 22:13:20 UTC: the "
            "directory could not be listed (Permission denied).");
  EXPECT_THAT(finding.evidence, Contains(Pair("reason", "directory_unreadable")));
  EXPECT_THAT(finding.evidence, Contains(Pair(HasSubstr("now"), "2")));
  EXPECT_EQ(finding.runbook, "NCCLExporterSegmentsUnusable");
}

TEST(UnusableSegmentsTest, IsSilentAboutFaultsThatAreOver) {
  collector::NodeSnapshot node;
  node.segment_troubles = {{.error = collector::SegmentError::kBadMagic,
                            .uid = 1001,
                            .count = 3,
                            .file = "/run/nccl-exporter/junk.seg",
                            .file_uid = 1001,
                            .detail = {},
                            .realtime_ns = 1,
                            .present = 0}};
  EXPECT_THAT(UnusableSegments(node), IsEmpty());
}

TEST(UnusableSegmentsTest, NamesWholePaths) {
  collector::NodeSnapshot node;
  const std::string file = "/run/nccl-exporter/" + std::string(100, 'x') + ".seg";
  node.segment_troubles = {{.error = collector::SegmentError::kBadMagic,
                            .uid = {},
                            .count = 1,
                            .file = file,
                            .file_uid = 7,
                            .detail = {},
                            .realtime_ns = 1,
                            .present = 1}};
  ASSERT_THAT(UnusableSegments(node), SizeIs(1));
  EXPECT_THAT(UnusableSegments(node).front().headline, HasSubstr(file + " of user 7 cannot"));
}

TEST(UnusableSegmentsTest, SaysOfWhatIsFollowedAllTheSameThatItIs) {
  collector::NodeSnapshot node;
  for (const auto error :
       {collector::SegmentError::kLockLost, collector::SegmentError::kForeignClock}) {
    node.segment_troubles = {{.error = error,
                              .uid = 7,
                              .count = 1,
                              .file = "/run/nccl-exporter/x.seg",
                              .file_uid = 7,
                              .detail = {},
                              .realtime_ns = 1,
                              .present = 1}};
    const std::vector<Finding> findings = UnusableSegments(node);
    ASSERT_THAT(findings, SizeIs(1));
    EXPECT_EQ(findings[0].severity, Severity::kInfo);
    EXPECT_THAT(findings[0].headline, HasSubstr("is followed with a fault"));
  }
}

}  // namespace
}  // namespace nccl_exporter::exporter
