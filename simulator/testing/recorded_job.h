// SPDX-License-Identifier: Apache-2.0
// Plays processes of a job to the recording plugin, inside of the test, and returns what the plugin
// recorded.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "simulator/job/job_options.h"
#include "simulator/testing/recording.h"

namespace nccl_exporter::sim {

struct RecordedJob {
  std::vector<std::string> lines;
  nlohmann::json ranks;  // the ground truth

  // Lines that begin with `start`, such as "U " or "U +Coll".
  std::vector<std::string> Starting(const std::string& start) const;
  // First two words of the lines, without what came from other threads: "+GroupApi r23 +CollApi …".
  std::string Order(char thread) const;
  // Value of `key` in a line; empty if it is not there.
  static std::string ValueOf(const std::string& line, const std::string& key);
  // The handle of the event in a line, such as "#12".
  static std::string HandleOf(const std::string& line);

  // Ground truth of a function on the first communicator of rank 0; one of its counts, summed over
  // the size classes.
  const nlohmann::json& TruthOf(const std::string& function) const;
  uint64_t SumOfSizes(const std::string& function, const std::string& count) const;
};

// Options of a job of two ranks on one node that plays one AllReduce per step, for that version of
// the API.
JobOptions OneAllReduce(int nccl_version);

RecordedJob Record(const JobOptions& options, const RecordingSettings& settings, int process = 0);

}  // namespace nccl_exporter::sim
