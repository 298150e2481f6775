// SPDX-License-Identifier: Apache-2.0
// Plugin and daemon of different versions: a node's jobs keep the plugin that they started with,
// whatever its daemon.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "collector/collector.h"
#include "exporter/testing/gunzip.h"
#include "tests/system/daemon.h"
#include "tests/system/layout_1_2_reader.h"
#include "tests/system/truth_comparison.h"

namespace nccl_exporter {
namespace {

using nlohmann::json;

const std::string kRecorded = "tests/system/segments_1_2/";

std::string Content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// The recorded segments of a job, in a directory.
void Unpack(const std::string& job, const collector::ScratchDirectory& directory) {
  for (const char* rank : {"0", "1"}) {
    const std::string segment =
        exporter::Gunzip(Content(kRecorded + job + "-rank-" + rank + ".seg.gz"));
    ASSERT_FALSE(segment.empty()) << job << rank;
    std::ofstream(directory.File(std::string(rank) + ".seg"), std::ios::binary) << segment;
  }
}

json TruthOf(const std::string& job) { return ReadTruth(kRecorded + job + ".truth.json"); }

// What a segment can hold of the ground truth, by communicator and rank.
json InSegments(const json& truth) {
  json communicators = json::object();
  for (const json& rank : truth["ranks"]) {
    for (json communicator : rank["communicators"]) {
      for (const char* unknown : {"asked_timing", "mask_faults", "destroy_hang"})
        communicator.erase(unknown);
      for (json& function : communicator["functions"]) {
        function.erase("bandwidth_sum");
        for (json& size : function["sizes"]) size.erase("duration");  // since 1.3
      }
      const std::string key =
          communicator["id"].get<std::string>() + "/" + communicator["rank"].dump();
      communicators[key] = std::move(communicator);
    }
  }
  return communicators;
}

// What the daemon of layout 1.2 finds in the segments of a directory.
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

class RecordedSegments : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { Unpack(GetParam(), segments_); }

  const json truth_ = TruthOf(GetParam());
  collector::ScratchDirectory segments_;
};

TEST_P(RecordedSegments, AreServedByTheDaemonOfToday) {
  ASSERT_GT(TotalOperations(truth_), 0u);
  Daemon daemon(segments_.path());
  ExpectEqualsTruth(daemon.Scrape(), truth_);
  ExpectSegmentsEqualTruth(segments_.path(), truth_);
}

TEST_P(RecordedSegments, HaveDurationsWithoutSizes) {
  Daemon daemon(segments_.path(), {"--metrics.duration-by-size"});
  const Exposition scrape = daemon.Scrape();
  ExpectEqualsTruth(scrape, truth_);
  for (const Sample& sample : scrape.Find("nccl_collective_duration_seconds_count", {}))
    EXPECT_FALSE(sample.labels.contains("size"));
}

INSTANTIATE_TEST_SUITE_P(OfLayout12, RecordedSegments, testing::Values("kernel", "drift"),
                         [](const auto& test) { return std::string(test.param); });

// By the dump of the daemon that recorded them.
TEST(RecordedSegment, HasTheLossesOfItsTime) {
  collector::ScratchDirectory segments;
  Unpack("drift", segments);
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

TEST(RecordedSegment, ShowsTheOperationInWhichItsRankWasKilled) {
  collector::ScratchDirectory segments;
  Unpack("kernel", segments);
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

// So the reader below has the right numbers.
TEST(Layout12Reader, ReadsTheSegmentsOfItsTime) {
  collector::ScratchDirectory segments;
  Unpack("kernel", segments);
  EXPECT_EQ(ReadByLayout12(segments), InSegments(TruthOf("kernel")));
  const Layout12Reader killed(Content(segments.File("1.seg")));
  EXPECT_EQ(killed.Communicators()[0]["in_flight"], json({"Broadcast"}));
  Unpack("drift", segments);
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
