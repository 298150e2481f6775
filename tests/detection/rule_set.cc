// SPDX-License-Identifier: Apache-2.0
#include "tests/detection/rule_set.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace nccl_exporter::detection {

RuleSet ReadRuleSet(const std::string& directory) {
  const std::string path = directory + "/detection.json";
  try {
    const nlohmann::json file = nlohmann::json::parse(std::ifstream(path));
    return {.directory = std::filesystem::absolute(directory),
            .prometheus = kDebianPrometheus,
            .scrape_interval_s = file.at("scrape_interval_seconds"),
            .detail_interval_s = file.at("detail_interval_seconds"),
            .evaluation_interval_s = file.at("evaluation_interval_seconds"),
            .lookback_s = file.at("lookback_seconds"),
            .retention_s = file.at("retention_seconds"),
            .time_scale = file.at("time_scale"),
            .class_of = file.at("classes")};
  } catch (const std::exception& error) {
    throw std::runtime_error(path + ": " + error.what());
  }
}

}  // namespace nccl_exporter::detection
