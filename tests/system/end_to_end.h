// SPDX-License-Identifier: Apache-2.0
// Fixture of tests that play a job with the real plugin and compare what the real daemon serves
// with its ground truth.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/system/daemon.h"
#include "tests/system/truth_comparison.h"

namespace nccl_exporter {

using Options = std::vector<std::string>;

class EndToEnd : public testing::Test {
 protected:
  std::string TruthPath() const { return results_.path() + "/truth.json"; }
  std::vector<std::string> Simulator(const Options& options) const {
    return SimulatorCommand(segments_.path(), TruthPath(), options);
  }
  // Runs a job to its end, and returns its ground truth.
  nlohmann::json RunJob(const Options& options,
                        const std::map<std::string, std::string>& environment = {}) const {
    const exporter::Finished job = exporter::RunToEnd(Simulator(options), environment);
    EXPECT_EQ(job.exit_code, 0) << job.output;
    nlohmann::json truth = ReadTruth(TruthPath());
    EXPECT_GT(TotalOperations(truth), 0u);
    return truth;
  }
  void ExpectBothEqual(const Exposition& scrape, const nlohmann::json& truth) const {
    ExpectEqualsTruth(scrape, truth);
    ExpectSegmentsEqualTruth(segments_.path(), truth);
  }
  static double Sum(const Exposition& scrape, const std::string& name, const Labels& labels = {}) {
    double sum = 0;
    for (const Sample& sample : scrape.Find(name, labels)) sum += sample.value;
    return sum;
  }

  collector::ScratchDirectory segments_;
  collector::ScratchDirectory results_;
};

}  // namespace nccl_exporter
