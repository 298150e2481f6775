// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/job/job_command.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>

#include "exporter/cli/job/http_config.h"
#include "exporter/cli/job/job.h"
#include "exporter/cli/job/job_report.h"
#include "exporter/cli/job/job_text.h"

namespace nccl_exporter::exporter {
namespace {

// 80 where standard output is no terminal.
size_t ColumnsOfOutput() {
  winsize size{};
  const bool is_known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0;
  return is_known ? size.ws_col : 80;
}

// Throws std::runtime_error where an answer does not come.
std::string Answer(const JobRequest& request, const AskSamples& ask, const Warnings& warnings,
                   size_t columns) {
  double time = 0;
  const std::vector<Job> all = JobsOf(SamplesOfJobs(ask), time);
  const std::vector<Job> jobs = Matching(all, request.wanted);
  if (jobs.empty()) throw std::runtime_error(NoSuchJob(request.wanted, all));
  if (jobs.size() > 1)
    return request.is_json ? JobsJson(jobs, warnings) : JobsScreen(jobs, warnings, columns);
  const JobReport report = ReportOf(ask, jobs.front(), time);
  return request.is_json ? JobJson(report, warnings) : JobScreen(report, warnings, columns);
}

}  // namespace

std::string AnswerAbout(const JobRequest& request, const AskPrometheus& ask, size_t columns,
                        std::string& fault) {
  Warnings warnings;
  const AskSamples ask_and_note = [&](const std::string& query) {
    QueryAnswer answer = ask(query);
    for (const std::string& warning : answer.warnings) {
      if (warnings.size() < kMostWarnings && std::ranges::count(warnings, warning) == 0)
        warnings.push_back(warning);
    }
    if (!answer.fault.empty()) throw std::runtime_error(answer.fault);
    return std::move(answer.samples);
  };
  try {
    return Answer(request, ask_and_note, warnings, columns);
  } catch (const std::runtime_error& wrong) {
    // A job that is missing may be in the part that did not come.
    fault = wrong.what() + (warnings.empty() ? "" : "; the " + WarningText(warnings));
    return "";
  }
}

std::string AnswerAbout(const JobRequest& request, std::string& fault) {
  const std::optional<HttpAddress> address = ParseHttpAddress(request.prometheus, fault);
  if (!address) return "";
  std::optional<HttpConfig> config = ReadHttpConfig(request.http_config_file, fault);
  if (!config) return "";
  return AnswerAbout(request, PrometheusAt(*address, *std::move(config)), ColumnsOfOutput(), fault);
}

}  // namespace nccl_exporter::exporter
