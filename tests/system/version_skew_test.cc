// SPDX-License-Identifier: Apache-2.0
// Plugin and daemon of different versions: a node's jobs keep the plugin that they started with,
// whatever its daemon.
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "collector/collector.h"
#include "tests/system/daemon.h"
#include "tests/system/layout_1_2_reader.h"
#include "tests/system/truth_comparison.h"
#include "tests/system/upgrade/recorded_job.h"

namespace nccl_exporter {
namespace {

using nlohmann::json;

std::string NameOfLayout(const std::string& folder) {
  return folder == kRecordedWith12 ? "Layout12" : "Layout13";
}

// Part of the ground truth that a segment can hold, by communicator and rank.
json InSegments(const json& truth) {
  json communicators = json::object();
  for (const json& rank : truth["ranks"]) {
    for (json communicator : rank["communicators"]) {
      for (const char* unknown : {"asked_timing", "mask_faults", "destroy_hang", "network"})
        communicator.erase(unknown);
      for (json& function : communicator["functions"]) {
        function.erase("bandwidth_sum");
        function.erase("phase_ns");                                   // up to 1.7
        for (json& size : function["sizes"]) size.erase("duration");  // since 1.3
      }
      const std::string key =
          communicator["id"].get<std::string>() + "/" + communicator["rank"].dump();
      communicators[key] = std::move(communicator);
    }
  }
  return communicators;
}

// Communicators that the daemon of layout 1.2 finds in the segments of a directory.
json ReadByLayout12(const collector::ScratchDirectory& directory) {
  json communicators = json::object();
  for (const std::string& name : directory.Files(".seg")) {
    const Layout12Reader reader(Content(directory.File(name)));
    EXPECT_EQ(reader.Refusal(), "") << name;
    if (!reader.Refusal().empty()) continue;
    for (json communicator : reader.Communicators()) {
      communicator.erase("in_flight");
      const std::string key =
          communicator["id"].get<std::string>() + "/" + communicator["rank"].dump();
      communicators[key] = std::move(communicator);
    }
  }
  return communicators;
}

class RecordedSegments : public testing::TestWithParam<std::tuple<std::string, const char*>> {
 protected:
  void SetUp() override { Unpack(Job(), segments_); }

  bool HasSizes() const { return std::get<0>(GetParam()) == kRecordedWith13; }
  std::string Job() const { return std::get<0>(GetParam()) + std::get<1>(GetParam()); }

  const json truth_ = TruthOf(Job());
  collector::ScratchDirectory segments_;
};

TEST_P(RecordedSegments, AreServedByTheDaemonOfToday) {
  ASSERT_GT(TotalOperations(truth_), 0u);
  Daemon daemon(segments_.path());
  ExpectEqualsTruth(daemon.Scrape(), truth_);
  ExpectSegmentsEqualTruth(segments_.path(), truth_);
}

TEST_P(RecordedSegments, HaveDurationsBySizeFrom13On) {
  Daemon daemon(segments_.path()), by_size(segments_.path(), {"--metrics.duration-by-size"});
  const std::string name = "nccl_collective_duration_seconds_count";
  double all = 0, sum_of_sizes = 0;
  bool has_sizes = false;
  for (const Sample& sample : daemon.Scrape().Find(name)) all += sample.value;
  for (const Sample& sample : by_size.Scrape().Find(name)) {
    has_sizes |= sample.labels.contains("size");  // as long as there was room
    sum_of_sizes += sample.value;
  }
  EXPECT_GT(all, 0);
  EXPECT_EQ(sum_of_sizes, all);
  EXPECT_EQ(has_sizes, HasSizes());
}

INSTANTIATE_TEST_SUITE_P(OfEachLayout, RecordedSegments,
                         testing::Combine(testing::Values(kRecordedWith12, kRecordedWith13),
                                          testing::Values("kernel", "drift")),
                         [](const auto& test) {
                           return NameOfLayout(std::get<0>(test.param)) + std::get<1>(test.param);
                         });

using RecordedSegment = testing::TestWithParam<std::string>;

// As the daemon counted that recorded them.
TEST_P(RecordedSegment, HasTheLossesOfItsTime) {
  collector::ScratchDirectory segments;
  Unpack(GetParam() + "drift", segments);
  collector::Collector collector({.directories = {segments.path()}});
  const auto snapshot = collector.Snapshot();
  ASSERT_EQ(snapshot->processes.size(), 2u);
  for (const collector::ProcessSnapshot& process : snapshot->processes) {
    const bool is_first = process.segment == "0.seg";
    EXPECT_EQ(process.losses[static_cast<size_t>(Loss::kDrift)], is_first ? 0u : 2u);
    EXPECT_EQ(process.losses[static_cast<size_t>(Loss::kCommunicatorDrifting)],
              is_first ? 288u : 286u);
    EXPECT_EQ(std::ranges::count_if(process.losses, [](uint64_t count) { return count != 0; }),
              is_first ? 1 : 2);
  }
}

TEST_P(RecordedSegment, ShowsTheOperationInWhichItsRankWasKilled) {
  collector::ScratchDirectory segments;
  Unpack(GetParam() + "kernel", segments);
  collector::Collector collector({.directories = {segments.path()}});
  std::vector<collector::InFlightOperation> in_flight;
  const auto snapshot = collector.Snapshot();
  for (const collector::ProcessSnapshot& process : snapshot->processes) {
    for (const collector::CommunicatorSnapshot& communicator : process.communicators) {
      in_flight.insert(in_flight.end(), communicator.in_flight.begin(),
                       communicator.in_flight.end());
    }
  }
  ASSERT_EQ(in_flight.size(), 1u);
  EXPECT_EQ(in_flight[0].function, Function::kBroadcast);
  EXPECT_EQ(in_flight[0].sequence, 16u);
  EXPECT_EQ(in_flight[0].bytes, 3145728u);
  EXPECT_EQ(in_flight[0].parts_announced, 1u);
  EXPECT_EQ(in_flight[0].parts_done, 0u);
}

INSTANTIATE_TEST_SUITE_P(OfEachLayout, RecordedSegment,
                         testing::Values(kRecordedWith12, kRecordedWith13),
                         [](const auto& test) { return NameOfLayout(test.param); });

// So the reader below has the right numbers.
TEST(Layout12Reader, ReadsTheSegmentsOfItsTime) {
  collector::ScratchDirectory segments;
  Unpack(kRecordedWith12 + "kernel", segments);
  EXPECT_EQ(ReadByLayout12(segments), InSegments(TruthOf(kRecordedWith12 + "kernel")));
  const Layout12Reader killed(Content(segments.File("1.seg")));
  EXPECT_EQ(killed.Communicators()[0]["in_flight"], json({"Broadcast"}));
  Unpack(kRecordedWith12 + "drift", segments);
  EXPECT_EQ(Layout12Reader(Content(segments.File("1.seg"))).Losses(),
            json({{"19", 2}, {"21", 286}}));
}

TEST(Layout12Reader, ReadsTheSegmentsOfTodaysPlugin) {
  collector::ScratchDirectory segments, results;
  const std::string truth_path = results.File("truth.json");
  const exporter::Finished job = exporter::RunToEnd(
      SimulatorCommand(segments.path(), truth_path,
                       {"--layout", "mixed", "--network", "all", "--ranks-per-node", "2",
                        "--no-finalize", "--env", "NCCL_EXPORTER_COMMUNICATORS=8"}),
      {{"NCCL_EXPORTER_KERNEL_TIMING", "on"}});
  ASSERT_EQ(job.exit_code, 0) << job.output;
  const json truth = InSegments(ReadTruth(truth_path));
  ASSERT_FALSE(truth.empty());
  EXPECT_EQ(ReadByLayout12(segments), truth);
}

}  // namespace
}  // namespace nccl_exporter
