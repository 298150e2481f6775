// SPDX-License-Identifier: Apache-2.0
// The rules under test: a directory of rule files for Prometheus, with a file detection.json that
// says how they are to be run and what each alert is for.
#pragma once

#include <map>
#include <string>

namespace nccl_exporter::detection {

inline constexpr char kDebianPrometheus[] = "/usr/bin/prometheus";

struct RuleSet {
  std::string directory;                       // absolute
  std::string prometheus = kDebianPrometheus;  // the program that evaluates them
  double scrape_interval_s = 1;                // of the alert series
  double detail_interval_s = 4;                // and of the others
  double evaluation_interval_s = 1;
  double lookback_s = 300;   // of Prometheus's queries
  double retention_s = 300;  // of what has ended
  double time_scale = 1;     // by which all durations of the rules are divided
  // Classes of alerts by name; alerts that are not there only inform.
  std::map<std::string, std::string> class_of;
};

// Throws std::runtime_error.
RuleSet ReadRuleSet(const std::string& directory);

}  // namespace nccl_exporter::detection
