// SPDX-License-Identifier: Apache-2.0
// ReportRequest, what `nccl-exporter report` is asked for, and its answer. Pure, for any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/cli/client/http_address.h"
#include "exporter/cli/report/jobs.h"
#include "exporter/cli/report/prometheus.h"
#include "exporter/cli/report/report.h"
#include "exporter/findings/node_judge.h"
#include "exporter/findings/thresholds.h"

namespace nccl_exporter::exporter {

// As given on the command line. Times are seconds since the epoch.
struct ReportRequest {
  HttpAddress prometheus{.host = "localhost", .port = "9090"};
  std::string http_config_file = {};  // empty: none
  SampleLabels wanted = {};           // of kJobLabels; nothing: the jobs
  std::optional<double> from = {};
  std::optional<double> to = {};
  std::optional<double> at = {};
  std::optional<std::chrono::nanoseconds> since = {};
  bool is_of_segments = false;
  std::string daemon = {};
  std::string file = {};                   // a report that was written before; empty: none
  std::vector<std::string> compared = {};  // of `report diff`: files or jobs
  std::string by = "team";                 // of `report costs`
  bool is_json = false;
  std::string html_file = {};
};

// Before and after the moment of --at.
inline constexpr double kAroundSeconds = 600;
// Without a time: of a job, and of a list of jobs, which are those of now.
inline constexpr double kReportSeconds = 86400, kListSeconds = 300;

// "2023-11-14T22:15", with or without seconds, a blank in place of the T and a Z behind; or
// "22:15", the last that has been before `now`. All in UTC. Nothing for other texts.
std::optional<double> MomentIn(std::string_view text, double now);

// Throws std::runtime_error with one line if it is empty.
TimeSpan TimeOf(const ReportRequest& request, double now);

// A report if one job matches, else the jobs to choose from.
struct ReportAnswer {
  std::optional<Report> report = {};
  std::vector<Job> jobs = {};
  std::vector<std::string> warnings = {};  // of the jobs

  std::string Text(size_t columns) const;
  std::string Json() const;
};
// Asks, and adds what the server says about an incomplete answer, which outlives it.
AskSamples Noting(AskPrometheus ask, std::vector<std::string>& warnings);
// Throw std::runtime_error with one line if there is no such job, or no answer.
ReportAnswer AnswerOfPrometheus(const ReportRequest& request, const AskPrometheus& ask, double now);
ReportAnswer AnswerOfNode(const ReportRequest& request, const collector::NodeSnapshot& node,
                          const Judgement& judgement, const Thresholds& thresholds,
                          const std::string& node_name);

}  // namespace nccl_exporter::exporter
