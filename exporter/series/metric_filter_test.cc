// SPDX-License-Identifier: Apache-2.0
// Values of the flags --metrics.*, and the messages about wrong ones.
#include "exporter/series/metric_filter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "proto/droppable_labels.h"

namespace nccl_exporter::exporter {
namespace {

using testing::HasSubstr;

TEST(MetricFilterTest, EverythingIsServedUnlessSwitchedOff) {
  const MetricFilter filter;
  for (const MetricRow& row : kMetrics) EXPECT_TRUE(filter.Serves(row.name)) << row.name;
  for (const DroppableLabel& label : kDroppableLabels)
    EXPECT_TRUE(filter.Keeps(label.name)) << label.name;
  EXPECT_EQ(filter.native_schema(), 3);
  EXPECT_EQ(filter.TakenFromRules(), "");
}

TEST(MetricFilterTest, FamiliesAreNamedWholeByTheirBeginningOrAsHistograms) {
  MetricFilter filter;
  EXPECT_EQ(filter.Disable("nccl_api_calls_total"), "");
  EXPECT_EQ(filter.Disable("nccl_p2p_*"), "");
  EXPECT_FALSE(filter.Serves("nccl_api_calls_total"));
  EXPECT_FALSE(filter.Serves("nccl_p2p_send_bytes_total"));
  EXPECT_FALSE(filter.Serves("nccl_p2p_recv_duration_seconds"));
  EXPECT_TRUE(filter.Serves("nccl_collective_duration_seconds"));
  EXPECT_EQ(filter.Disable("histograms"), "");
  for (const MetricRow& row : kMetrics) {
    if (row.type == MetricType::kHistogram) {
      EXPECT_FALSE(filter.Serves(row.name)) << row.name;
    }
  }
  EXPECT_TRUE(filter.Serves("nccl_collective_busy_seconds_total"));
}

TEST(MetricFilterTest, WhatIsUnknownIsAnsweredWithTheNearest) {
  MetricFilter filter;
  EXPECT_EQ(filter.Disable("nccl_api_call_total"),
            "no family is called 'nccl_api_call_total'; the nearest is nccl_api_calls_total");
  EXPECT_THAT(filter.Disable("histogram"), HasSubstr("the nearest is histograms"));
  EXPECT_NE(filter.Disable(""), "");
  EXPECT_NE(filter.Disable("nccl_*_seconds"), "") << "an asterisk inside is none";
  EXPECT_EQ(filter.DropLabel("global-rank"),
            "'global-rank' is no label that can be dropped; the nearest is global_rank");
  for (const char* label : {"le", "reason", "state", "gpu_uuid", "instance", "", "*"}) {
    EXPECT_THAT(filter.DropLabel(label), HasSubstr("is no label that can be dropped")) << label;
  }
}

TEST(MetricFilterTest, ClassicBucketsAreThoseOfTheContractOrOff) {
  MetricFilter filter;
  const auto scale = [&](Metric metric) {
    return ExpositionOfCatalogue(filter).families[static_cast<size_t>(metric)].scale;
  };
  for (const Metric metric :
       {Metric::kCollectiveDuration, Metric::kSendDuration, Metric::kRecvDuration}) {
    const std::vector<double> bounds = scale(metric).bounds;
    ASSERT_EQ(bounds.size(), kClassicDurationBounds.size());
    for (size_t i = 0; i < bounds.size(); ++i)
      EXPECT_EQ(bounds[i], std::exp2(kClassicDurationBounds[i] / 8.0));
  }
  EXPECT_EQ(scale(Metric::kCollectiveBusBandwidth).bounds.size(), kClassicBandwidthBounds.size());
  EXPECT_EQ(scale(Metric::kCollectiveBusBandwidth).bounds.front(), 1 << 27);
  EXPECT_EQ(filter.SetClassicBuckets("off"), "");
  for (const Metric metric : {Metric::kCollectiveDuration, Metric::kCollectiveBusBandwidth}) {
    EXPECT_THAT(scale(metric).bounds, testing::IsEmpty());
    EXPECT_TRUE(scale(metric).native);
  }
  EXPECT_EQ(filter.SetClassicBuckets("on"), "");
  EXPECT_FALSE(scale(Metric::kCollectiveDuration).bounds.empty());
  for (const char* state : {"", "none", "On", "0.001,1"})
    EXPECT_EQ(filter.SetClassicBuckets(state), "it is on or off") << state;
}

TEST(MetricFilterTest, NativeResolutionIsASchemaOrOff) {
  MetricFilter filter;
  EXPECT_EQ(filter.SetNativeSchema("0"), "");
  EXPECT_EQ(filter.native_schema(), 0);
  EXPECT_EQ(filter.SetNativeSchema("off"), "");
  EXPECT_EQ(filter.native_schema(), std::nullopt);
  for (const char* schema : {"", "4", "-1", "33", "on"})
    EXPECT_NE(filter.SetNativeSchema(schema), "") << schema;
}

TEST(MetricFilterTest, WhatTheRulesNeedIsNamed) {
  MetricFilter filter;
  filter.Disable("histograms");
  filter.DropLabel("comm_name");
  filter.DropLabel("gpu");
  EXPECT_EQ(filter.TakenFromRules(), "");
  filter.DropLabel("size");
  filter.Disable("nccl_rank_*");
  filter.Disable("nccl_process_*");
  EXPECT_EQ(filter.TakenFromRules(),
            "nccl_rank_kernel_seconds_total, nccl_rank_p2p_kernel_seconds_total, "
            "nccl_rank_p2p_operations_total, nccl_rank_timed_operations_total, "
            "nccl_rank_steps_total, nccl_rank_step_wait_seconds_total, nccl_rank_info, "
            "nccl_process_halted, nccl_process_p2p_operations_total, "
            "nccl_process_unserved_communicators, nccl_process_cpu_wait_seconds_total, "
            "nccl_process_throttled_seconds_total, nccl_process_memory_stall_seconds_total, "
            "nccl_process_major_faults_total, nccl_process_verbs_devices, "
            "nccl_process_operations_unfollowed_total, nccl_process_operations_rejected_total, "
            "size");
}

TEST(MetricFilterTest, TheNearestNameTakesTheFewestChangesAndIsTheFirstOfEquals) {
  const auto nearest = [](std::string_view text) {
    const std::string complaint = MetricFilter().DropLabel(text);
    return complaint.substr(complaint.rfind(' ') + 1);
  };
  EXPECT_EQ(nearest("ranks"), "rank");
  EXPECT_EQ(nearest("cpu"), "gpu");
  EXPECT_EQ(nearest("grank"), "rank");
  EXPECT_EQ(nearest("lobalrank"), "global_rank");
  EXPECT_EQ(nearest(""), "gpu");
}

}  // namespace
}  // namespace nccl_exporter::exporter
