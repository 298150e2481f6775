// SPDX-License-Identifier: Apache-2.0
// Jobs whose segments plugins of earlier layouts wrote, kept with their ground truth.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "collector/testing/scratch_directory.h"

namespace nccl_exporter {

// The folders of the layouts. In each there are the jobs "kernel" and "drift", of two ranks.
inline const std::string kRecordedWith12 = "tests/system/segments_1_2/";
inline const std::string kRecordedWith13 = "tests/system/segments_1_3/";

std::string Content(const std::string& path);

// The segments of a job (folder and name), by rank.
std::vector<std::string> RecordedSegmentsOf(const std::string& job);
// Writes the segments of a job as files of a directory.
void Unpack(const std::string& job, const collector::ScratchDirectory& directory);

nlohmann::json TruthOf(const std::string& job);

}  // namespace nccl_exporter
