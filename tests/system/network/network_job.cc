// SPDX-License-Identifier: Apache-2.0
#include "tests/system/network/network_job.h"

#include <fstream>

#include "exporter/testing/child_process.h"

namespace nccl_exporter {

void NetworkJob::Play(const Options& options,
                      const std::map<std::string, std::string>& environment) {
  const collector::ScratchDirectory segments, results;
  const std::string truth = results.File("truth.json");
  std::vector<std::string> command{"simulator/nccl-sim",
                                   "--plugin",
                                   "plugin/libnccl-profiler-exporter.so",
                                   "--segment-dir",
                                   segments.path(),
                                   "--truth",
                                   truth,
                                   "--env",
                                   "NCCL_ALLGATHERV_ENABLE=0"};
  command.insert(command.end(), options.begin(), options.end());
  const exporter::Finished job = exporter::RunToEnd(command, environment);
  ASSERT_EQ(job.exit_code, 0) << job.output;
  std::ifstream file(truth);
  truth_ = nlohmann::json::parse(file, nullptr, false);
  ASSERT_FALSE(truth_.is_discarded());
  sums_ = ReadSegmentSums(segments.path());
}

}  // namespace nccl_exporter
