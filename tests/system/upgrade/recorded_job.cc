// SPDX-License-Identifier: Apache-2.0
#include "tests/system/upgrade/recorded_job.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "exporter/testing/gunzip.h"
#include "tests/system/truth_comparison.h"

namespace nccl_exporter {

std::string Content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> RecordedSegmentsOf(const std::string& job) {
  std::vector<std::string> segments;
  for (const char* rank : {"0", "1"}) {
    segments.push_back(exporter::Gunzip(Content(job + "-rank-" + rank + ".seg.gz")));
    EXPECT_FALSE(segments.back().empty()) << job << rank;
  }
  return segments;
}

void Unpack(const std::string& job, const collector::ScratchDirectory& directory) {
  int rank = 0;
  for (const std::string& segment : RecordedSegmentsOf(job))
    std::ofstream(directory.File(std::to_string(rank++) + ".seg"), std::ios::binary) << segment;
}

nlohmann::json TruthOf(const std::string& job) { return ReadTruth(job + ".truth.json"); }

}  // namespace nccl_exporter
