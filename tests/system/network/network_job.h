// SPDX-License-Identifier: Apache-2.0
// Fixture of tests that play a job with the real plugin and compare the network time in its
// segments with the ground truth.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "collector/testing/scratch_directory.h"
#include "tests/system/network/network_sums.h"

namespace nccl_exporter {

class NetworkJob : public testing::Test {
 protected:
  using Options = std::vector<std::string>;
  // Key of a communicator: its id, as the ground truth has it, and the rank.
  using Key = std::pair<std::string, int>;

  // Plays a job of the simulator to its end. Its segments replace those of the one before.
  void Play(const Options& options, const std::map<std::string, std::string>& environment);
  // Visits each communicator of each rank that had an operation: its ground truth, and its sums.
  template <typename Visitor>
  void ForEachCommunicator(Visitor visit) const {
    for (const nlohmann::json& rank : truth_["ranks"]) {
      for (const nlohmann::json& communicator : rank["communicators"]) {
        if (communicator["functions"].empty()) continue;
        const Key key{communicator["id"].get<std::string>(), communicator["rank"].get<int>()};
        SCOPED_TRACE(key.first + "/" + std::to_string(key.second));
        ASSERT_TRUE(sums_.communicators.contains(key));
        visit(communicator, sums_.communicators.at(key));
      }
    }
  }

  nlohmann::json truth_;
  SegmentSums sums_;
};

}  // namespace nccl_exporter
