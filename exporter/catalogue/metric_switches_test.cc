// SPDX-License-Identifier: Apache-2.0
// What the flags --metrics.* take, and what they say of what they do not.
#include "exporter/catalogue/metric_switches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exporter/catalogue/nearest_name.h"
#include "proto/metric_choice.h"

namespace nccl_exporter {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(MetricSwitchesTest, EverythingIsServedUnlessSwitchedOff) {
  const MetricSwitches switches;
  for (const MetricRow& row : kMetrics) EXPECT_TRUE(switches.Serves(row.name)) << row.name;
  for (const DroppableLabel& label : kDroppableLabels) EXPECT_TRUE(switches.Keeps(label.name)) << label.name;
  EXPECT_EQ(switches.native_schema(), 3);
  EXPECT_EQ(switches.TakenFromRules(), "");
}

TEST(MetricSwitchesTest, FamiliesAreNamedWholeByTheirBeginningOrAsHistograms) {
  MetricSwitches switches;
  EXPECT_EQ(switches.Disable("nccl_api_calls_total"), "");
  EXPECT_EQ(switches.Disable("nccl_p2p_*"), "");
  EXPECT_FALSE(switches.Serves("nccl_api_calls_total"));
  EXPECT_FALSE(switches.Serves("nccl_p2p_send_bytes_total"));
  EXPECT_FALSE(switches.Serves("nccl_p2p_recv_duration_seconds"));
  EXPECT_TRUE(switches.Serves("nccl_collective_duration_seconds"));
  EXPECT_EQ(switches.Disable("histograms"), "");
  for (const MetricRow& row : kMetrics) {
    if (row.type == MetricType::kHistogram) {
      EXPECT_FALSE(switches.Serves(row.name)) << row.name;
    }
  }
  EXPECT_TRUE(switches.Serves("nccl_collective_busy_seconds_total"));
}

TEST(MetricSwitchesTest, WhatIsUnknownIsAnsweredWithTheNearest) {
  MetricSwitches switches;
  EXPECT_EQ(switches.Disable("nccl_api_call_total"),
            "no family is called 'nccl_api_call_total'; the nearest is nccl_api_calls_total");
  EXPECT_THAT(switches.Disable("histogram"), HasSubstr("the nearest is histograms"));
  EXPECT_NE(switches.Disable(""), "");
  EXPECT_NE(switches.Disable("nccl_*_seconds"), "") << "an asterisk inside is none";
  EXPECT_EQ(switches.DropLabel("global-rank"),
            "'global-rank' is no label that can be dropped; the nearest is global_rank");
  for (const char* label : {"le", "reason", "state", "gpu_uuid", "instance", "", "*"}) {
    EXPECT_THAT(switches.DropLabel(label), HasSubstr("is no label that can be dropped")) << label;
  }
}

TEST(MetricSwitchesTest, BoundsMoveToTheNearestOfTheSegment) {
  MetricSwitches switches;
  EXPECT_EQ(switches.SetDurationBounds("0.001,0.01,1"), "");
  EXPECT_THAT(switches.duration_bounds(), ElementsAre(-80, -53, 0));
  EXPECT_EQ(switches.SetBandwidthBounds("1e9,1e12"), "");
  EXPECT_THAT(switches.bandwidth_bounds(), ElementsAre(239, 319));
  EXPECT_EQ(switches.SetDurationBounds("none"), "");
  EXPECT_THAT(switches.duration_bounds(), ElementsAre());
}

TEST(MetricSwitchesTest, BoundsThatCannotBeAreRefused) {
  MetricSwitches switches;
  for (const char* list :
       {"", "0", "-1", "1,", ",1", "1 ,2", "x", "1s", "inf", "nan", "1,1", "2,1", "1,1.01", "1e-9", "1e6", "None"}) {
    EXPECT_NE(switches.SetDurationBounds(list), "") << list;
  }
  EXPECT_EQ(switches.SetDurationBounds("1,2,3,4,5,6,7,8,9,10,11,12,13,14.5,16,18"), "");
  EXPECT_THAT(switches.SetDurationBounds("1,2,3,4,5,6,7,8,9,10,11,12,13,14.5,16,18,20"), HasSubstr("more than 16"));
  EXPECT_NE(switches.SetBandwidthBounds("1000"), "");
}

TEST(MetricSwitchesTest, NativeResolutionIsASchemaOrOff) {
  MetricSwitches switches;
  EXPECT_EQ(switches.SetNativeSchema("0"), "");
  EXPECT_EQ(switches.native_schema(), 0);
  EXPECT_EQ(switches.SetNativeSchema("off"), "");
  EXPECT_EQ(switches.native_schema(), std::nullopt);
  for (const char* schema : {"", "4", "-1", "33", "on"}) EXPECT_NE(switches.SetNativeSchema(schema), "") << schema;
}

TEST(MetricSwitchesTest, WhatTheRulesNeedIsNamed) {
  MetricSwitches switches;
  switches.Disable("histograms");
  switches.DropLabel("comm_name");
  switches.DropLabel("gpu");
  EXPECT_EQ(switches.TakenFromRules(), "");
  switches.DropLabel("size");
  switches.Disable("nccl_rank_*");
  switches.Disable("nccl_process_*");
  EXPECT_EQ(switches.TakenFromRules(),
            "nccl_rank_info, nccl_process_alive, nccl_process_stopped, nccl_process_events_dropped_total, "
            "nccl_process_timestamps_rejected_total, size");
}

TEST(NearestNameTest, CountsWhatMustBeChanged) {
  constexpr std::string_view kNames[]{"rank", "gpu", "global_rank"};
  EXPECT_EQ(NearestName("ranks", kNames), "rank");
  EXPECT_EQ(NearestName("cpu", kNames), "gpu");
  EXPECT_EQ(NearestName("grank", kNames), "rank");
  EXPECT_EQ(NearestName("lobalrank", kNames), "global_rank");
  EXPECT_EQ(NearestName("", kNames), "gpu");
}

}  // namespace
}  // namespace nccl_exporter
