// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/report/report_diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "exporter/cli/report/report_text.h"
#include "exporter/findings/late/busy_rates.h"
#include "exporter/findings/words.h"

namespace nccl_exporter::exporter {
namespace {

// A change is more than these shares of the measure and of the step, as equal runs differ by less.
struct Least {
  double of_measure, of_step;
};
constexpr Least kOfParts{.of_measure = 0.03, .of_step = 0.001};
// Sums of a whole life, without parts, have the time of the start in them, and no known noise.
constexpr Least kOfSums{.of_measure = 0.05, .of_step = 0.01};
// Standard errors of the difference. Some ten measures with 16 parts differ by chance by five in
// one of a thousand pairs.
constexpr double kStandardErrors = 5;
constexpr size_t kLeastParts = 4;
constexpr double kManyTimes = 10;  // more than a percentage shows well

struct Estimate {
  double value = 0;  // median of the parts
  double error = 0;  // its standard error
  bool has_parts = false;
};

// By the median, so that a pause or a slow start counts as one part only.
Estimate EstimateOf(const std::vector<double>& parts) {
  constexpr double kDeviationToSigma = 1.4826, kErrorOfMedian = 1.2533;  // of normal noise
  if (parts.empty()) return {.has_parts = true};
  Estimate estimate{.value = Quantile(0.5, parts), .has_parts = parts.size() >= kLeastParts};
  std::vector<double> deviations;
  for (const double part : parts) deviations.push_back(std::abs(part - estimate.value));
  estimate.error = kErrorOfMedian * kDeviationToSigma * Quantile(0.5, std::move(deviations)) /
                   std::sqrt(static_cast<double>(parts.size()));
  return estimate;
}

bool IsBeyondNoise(const Estimate& before, const Estimate& after, double step) {
  const Least& shares = before.has_parts && after.has_parts ? kOfParts : kOfSums;
  const double least =
      std::max({shares.of_measure * std::max(before.value, after.value), shares.of_step * step,
                kStandardErrors * std::hypot(before.error, after.error)});
  return std::abs(after.value - before.value) > least;
}

std::map<std::string, Estimate> EstimatesOf(const Report& report) {
  if (report.step.empty() || report.measures.empty())
    throw std::runtime_error(fmt::format(
        "{} has too few timed steps from {} to {}: take a longer time", report.job.Text(),
        MomentText(report.from), MomentText(report.to, report.from)));
  std::map<std::string, Estimate> estimates;
  for (const ReportMeasure& measure : report.measures)
    estimates[measure.name] = EstimateOf(measure.seconds);
  return estimates;
}

bool KnowsTransfers(const Report& report) {
  return std::ranges::any_of(report.measures, [](const ReportMeasure& measure) {
    return measure.name.starts_with("transfer in ");
  });
}

// Without GPU times on one side, a time in collectives would be all new.
bool ComparesStepsAlone(const Report& before, const Report& after) {
  return KnowsTransfers(before) != KnowsTransfers(after);
}

}  // namespace

std::vector<ReportChange> ChangesOf(const Report& before, const Report& after) {
  std::map<std::string, Estimate> old = EstimatesOf(before), now = EstimatesOf(after);
  if (before.step != after.step)
    throw std::runtime_error(fmt::format("steps are not comparable: one has '{}', the other '{}'",
                                         Printable(before.step), Printable(after.step)));
  if (ComparesStepsAlone(before, after)) {
    const auto is_part = [&](const auto& entry) { return entry.first != before.step; };
    std::erase_if(old, is_part);
    std::erase_if(now, is_part);
  }
  const double step = old[before.step].value;
  std::vector<ReportChange> changes;
  for (const auto& [name, estimate] : old) now.try_emplace(name, Estimate{.has_parts = true});
  for (const auto& [name, estimate] : now) {
    const Estimate was = old.try_emplace(name, Estimate{.has_parts = true}).first->second;
    if (IsBeyondNoise(was, estimate, step)) changes.push_back({name, was.value, estimate.value});
  }
  std::ranges::stable_sort(changes, std::ranges::greater(), [](const ReportChange& change) {
    return std::abs(change.after - change.before);
  });
  return changes;
}

std::string DiffText(const Report& before, const Report& after, size_t columns) {
  ReportTable table{.title = "",
                    .columns = {{"PER STEP"}, {"BEFORE"}, {"AFTER"}, {"BY"}, {"WHAT", true}},
                    .rows = {}};
  for (const auto& [name, was, is] : ChangesOf(before, after))
    table.rows.push_back({(is < was ? '-' : '+') + DurationText(std::abs(is - was)),
                          DurationText(was), DurationText(is),
                          was <= 0                ? ""
                          : is > kManyTimes * was ? fmt::format("{:.0f} times", is / was)
                                                  : fmt::format("{:+.1f} %", (is / was - 1) * 100),
                          PrintablePath(name)});
  std::string text = table.rows.empty() ? "" : TableText(table, columns);
  if (ComparesStepsAlone(before, after))
    text += fmt::format("Steps alone are compared: the {} has no GPU times.\n",
                        KnowsTransfers(before) ? "second" : "first");
  return text;
}

std::string DiffJson(const Report& before, const Report& after) {
  nlohmann::json changes = nlohmann::json::array();
  for (const auto& [name, was, is] : ChangesOf(before, after))
    changes.push_back({{"name", name}, {"before", was}, {"after", is}});
  return JsonLine({{"step", before.step},
                   {"steps_alone", ComparesStepsAlone(before, after)},
                   {"changes", changes}});
}

}  // namespace nccl_exporter::exporter
