// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/report/report_request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <stdexcept>
#include <utility>

#include "exporter/cli/report/report_of_node.h"
#include "exporter/cli/report/report_of_prometheus.h"
#include "exporter/cli/report/report_text.h"

namespace nccl_exporter::exporter {
namespace {

constexpr double kDay = 86400;
constexpr double kMostSeconds = 3 * 366 * kDay;  // costs are asked for by the day

// Nothing unless `text` is all of the format.
std::optional<double> TimeIn(const std::string& text, const char* format, std::tm day) {
  const char* const end = ::strptime(text.c_str(), format, &day);
  if (end == nullptr || *end != '\0') return std::nullopt;
  return static_cast<double>(::timegm(&day));
}

std::vector<Job> Matching(const SampleLabels& wanted, std::vector<Job> jobs) {
  std::erase_if(jobs, [&](const Job& job) { return !job.Has(wanted); });
  return jobs;
}

}  // namespace

std::optional<double> MomentIn(std::string_view text, double now) {
  std::string moment(text.substr(0, text.size() - (text.ends_with('Z') ? 1 : 0)));
  std::ranges::replace(moment, 'T', ' ');
  for (const char* const format : {"%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S"}) {
    if (const auto time = TimeIn(moment, format, {})) return time;
  }
  const auto seconds = static_cast<std::time_t>(now);
  std::tm today{};
  ::gmtime_r(&seconds, &today);
  today.tm_hour = today.tm_min = today.tm_sec = 0;
  for (const char* const format : {"%H:%M", "%H:%M:%S"}) {
    if (const auto time = TimeIn(moment, format, today)) return *time > now ? *time - kDay : *time;
  }
  return std::nullopt;
}

TimeSpan TimeOf(const ReportRequest& request, double now) {
  const double to = request.to.value_or(now);
  TimeSpan time{.from = to - (request.wanted.empty() ? kListSeconds : kReportSeconds), .to = to};
  if (request.since) time.from = now - std::chrono::duration<double>(*request.since).count();
  if (request.from) time.from = *request.from;
  if (request.at) time = {.from = *request.at - kAroundSeconds, .to = *request.at + kAroundSeconds};
  time.to = std::min(time.to, now);
  if (!(time.from < time.to))
    throw std::runtime_error("there is no time between the begin and the end, or it is to come");
  if (time.seconds() > kMostSeconds)
    throw std::runtime_error("the time is longer than three years");
  return time;
}

AskSamples Noting(AskPrometheus ask, std::vector<std::string>& warnings) {
  return [ask = std::move(ask), &warnings](const std::string& query, double time) {
    QueryAnswer part = ask(query, time);
    for (std::string& warning : part.warnings) {
      if (warnings.size() < kMostWarnings && std::ranges::count(warnings, warning) == 0)
        warnings.push_back(std::move(warning));
    }
    return std::move(part.samples);
  };
}

ReportAnswer AnswerOfPrometheus(const ReportRequest& request, const AskPrometheus& ask,
                                double now) {
  ReportAnswer answer;
  const AskSamples ask_and_note = Noting(ask, answer.warnings);
  const TimeSpan time = TimeOf(request, now);
  answer.jobs = Matching(request.wanted, JobsOf(ask_and_note, request.wanted, time));
  if (answer.jobs.empty()) {
    std::string why = NoSuchJob(request.wanted, JobsOf(ask_and_note, {}, time));
    // A job that is missing may be in the part that did not come.
    if (!answer.warnings.empty())
      why += fmt::format("; the answer is incomplete: {}", fmt::join(answer.warnings, "; "));
    throw std::runtime_error(why);
  }
  if (request.wanted.empty() || answer.jobs.size() > 1) {
    AddTroubles(ask_and_note, time, answer.jobs);
    return answer;
  }
  answer.report = ReportOfPrometheus(ask_and_note, answer.jobs.front(), time);
  answer.report->warnings = answer.warnings;
  return answer;
}

ReportAnswer AnswerOfNode(const ReportRequest& request, const collector::NodeSnapshot& node,
                          const Judgement& judgement, const Thresholds& thresholds,
                          const std::string& node_name) {
  const std::vector<Job> all = JobsOf(node);
  ReportAnswer answer{.jobs = Matching(request.wanted, all)};
  if (answer.jobs.empty()) throw std::runtime_error(NoSuchJob(request.wanted, all));
  if (answer.jobs.size() == 1)
    answer.report = ReportOfNode(node, judgement, answer.jobs.front(), thresholds, node_name);
  return answer;
}

std::string ReportAnswer::Text(size_t columns) const {
  return report ? ReportText(*report, columns) : JobsText(jobs, warnings, columns);
}

std::string ReportAnswer::Json() const {
  return report ? ReportJson(*report) : JobsJson(jobs, warnings);
}

}  // namespace nccl_exporter::exporter
