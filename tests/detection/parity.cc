// SPDX-License-Identifier: Apache-2.0
#include "tests/detection/parity.h"

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <stdexcept>

#include "collector/collector.h"
#include "exporter/exposition/encoder.h"
#include "exporter/findings/node_judge.h"
#include "exporter/ledger/ledger.h"
#include "exporter/series/snapshot_families.h"
#include "exporter/testing/child_process.h"

namespace nccl_exporter::detection {
namespace {

constexpr std::array<const char*, kNamedForCount> kAlertsThatName{
    "NCCLStragglerRank|NCCLLastArriver", "NCCLHangCulprit"};
constexpr const char* kTarget = R"(job="nccl",instance="node0:9828")";

exporter::LedgerTimes TimesOf(double time_scale, const exporter::Thresholds& thresholds) {
  exporter::LedgerTimes times = exporter::LedgerTimes().Scaled(time_scale);
  times.longest_step_ns = thresholds.longest_step.count();
  return times;
}

// As Prometheus names the series of the node.
std::string OfTarget(const std::string& series) {
  const size_t brace = series.find('{');
  if (brace == std::string::npos) return series + '{' + kTarget + '}';
  return series.substr(0, brace + 1) + kTarget + ',' + series.substr(brace + 1);
}

// Values of all evaluations. A series that is not served any more is stale.
std::string ValuesText(const std::map<size_t, std::string>& values, size_t evaluations) {
  std::string text;
  bool was_there = false;
  for (size_t i = 0; i < evaluations; ++i) {
    const auto value = values.find(i);
    text += value != values.end() ? value->second : was_there ? "stale" : "_";
    text += ' ';
    was_there = value != values.end();
  }
  text.pop_back();
  return text;
}

std::string QueryOf(size_t named_for) {
  return std::string("group by (pid, gpu) (ALERTS{alertstate=\"firing\", alertname=~\"") +
         kAlertsThatName[named_for] + "\"})";
}

std::string TextOf(const NamedProcesses& named) {
  std::string text;
  for (const auto& [pid, gpu] : named)
    text += (text.empty() ? "" : ", ") + ("pid " + pid + " GPU " + gpu);
  return text.empty() ? "nobody" : text;
}

NamedProcesses NamedIn(const std::string& samples) {
  static const std::regex kSample(R"rx(\{gpu="([^"]*)", pid="([^"]*)"\})rx");
  NamedProcesses named;
  for (std::sregex_iterator sample(samples.begin(), samples.end(), kSample), end; sample != end;
       ++sample)
    named.emplace((*sample)[2], (*sample)[1]);
  return named;
}

// Names of the groups, in the order in which they are to be evaluated.
std::vector<std::string> GroupsOf(const std::string& rules) {
  std::ifstream file(rules);
  static const std::regex kName(R"(^ *- name: (.*)$)");
  std::vector<std::string> groups;
  std::smatch match;
  for (std::string line; std::getline(file, line);) {
    if (std::regex_match(line, match, kName)) groups.push_back(match[1]);
  }
  return groups;
}

}  // namespace

struct ParityRecord::Judge {
  exporter::Thresholds thresholds;
  exporter::Ledger ledger;
  exporter::NodeJudge judge;
  exporter::SeriesMemory memory;
  int64_t steps = 0;
  int64_t begin_ns = 0;  // CLOCK_MONOTONIC

  explicit Judge(double time_scale)
      : thresholds(exporter::Thresholds().Scaled(time_scale)),
        ledger(TimesOf(time_scale, thresholds)),
        judge(thresholds) {}

  std::array<NamedProcesses, kNamedForCount> Named(const collector::NodeSnapshot& node) const {
    std::array<NamedProcesses, kNamedForCount> named;
    for (const exporter::Finding& finding : judge.Judge(node).findings) {
      if (finding.severity == exporter::Severity::kInfo) continue;
      const bool is_late = finding.kind == exporter::FindingKind::kLateRank;
      // A wait that is no hang yet is shown, and no alert.
      const bool is_hang = finding.kind == exporter::FindingKind::kHangCulprit &&
                           finding.headline.find(" hangs since ") != std::string::npos;
      if (!is_late && !is_hang) continue;
      for (const exporter::FoundRank& culprit : finding.culprits) {
        named[static_cast<size_t>(is_late ? NamedFor::kLate : NamedFor::kHang)].emplace(
            std::to_string(culprit.pid), std::to_string(culprit.gpu_index));
      }
    }
    return named;
  }
};

ParityRecord::ParityRecord(double time_scale) : judge_(std::make_unique<Judge>(time_scale)) {}
ParityRecord::~ParityRecord() = default;

double ParityRecord::step_seconds() const {
  return exporter::Seconds(judge_->thresholds.interval) / kStepsPerEvaluation;
}

NamedProcesses ParityRecord::EverNamed(NamedFor named_for) const {
  NamedProcesses ever;
  for (const auto& named : named_)
    ever.merge(NamedProcesses(named[static_cast<size_t>(named_for)]));
  return ever;
}

void ParityRecord::Take(std::shared_ptr<const collector::NodeSnapshot> node, int64_t step) {
  if (step != judge_->steps) return;
  // Times are even, so that the rates of both are over the same seconds.
  if (judge_->steps == 0)
    judge_->begin_ns =
        std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  const int64_t monotonic_ns =
      judge_->begin_ns + judge_->steps * judge_->thresholds.interval.count() / kStepsPerEvaluation;
  const auto book = judge_->ledger.Enter(
      node, {.monotonic_ns = monotonic_ns, .realtime_ns = node->taken_realtime_ns});
  judge_->judge.Record(*book, monotonic_ns);
  if (judge_->steps++ % kStepsPerEvaluation != 0) return;
  exporter::Exposition exposition = exporter::ExpositionOfCatalogue({}, exporter::Collect::kAlerts);
  constexpr size_t kMostSeries = 20'000;
  AddSnapshotFamilies(book, kMostSeries, judge_->memory, exposition, exporter::Collect::kAlerts);
  std::string text;
  exporter::Encode(exporter::Format::kText, exposition, text);
  if (named_.empty()) begin_realtime_s_ = static_cast<double>(node->taken_realtime_ns) / 1e9;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.front() == '#') continue;
    const size_t space = line.rfind(' ');
    std::string value = line.substr(space + 1);
    // promtool's clock begins at 0.
    if (line.substr(0, line.find('{')).ends_with("_timestamp_seconds"))
      value = std::to_string(std::stod(value) - begin_realtime_s_);
    series_[OfTarget(line.substr(0, space))][named_.size()] = std::move(value);
  }
  series_[OfTarget("up")][named_.size()] = "1";
  named_.push_back(judge_->Named(*node));
}

ParityResult ParityRecord::Compare(const std::string& rules, const std::string& scratch) const {
  const std::string interval =
      std::to_string(judge_->thresholds.interval / std::chrono::milliseconds(1)) + "ms";
  nlohmann::json input = nlohmann::json::array(), checks = nlohmann::json::array();
  for (const auto& [series, values] : series_)
    input.push_back({{"series", series}, {"values", ValuesText(values, named_.size())}});
  for (size_t i = 0; i < named_.size(); ++i) {
    for (size_t named_for = 0; named_for < kNamedForCount; ++named_for) {
      nlohmann::json samples = nlohmann::json::array();
      for (const auto& [pid, gpu] : named_[i][named_for])
        samples.push_back({{"labels", "{pid=\"" + pid + "\",gpu=\"" + gpu + "\"}"}, {"value", 1}});
      checks.push_back(
          {{"expr", QueryOf(named_for)},
           {"eval_time", std::to_string(static_cast<int64_t>(i) * judge_->thresholds.interval /
                                        std::chrono::milliseconds(1)) +
                             "ms"},
           {"exp_samples", samples}});
    }
  }
  const std::string file = scratch + "/parity.json";
  std::ofstream(file) << nlohmann::json{
      {"rule_files", {rules}},
      {"evaluation_interval", interval},
      {"group_eval_order", GroupsOf(rules)},
      {"tests", {{{"interval", interval}, {"input_series", input}, {"promql_expr_test", checks}}}}};
  const exporter::Finished promtool = exporter::RunToEnd({"promtool", "test", "rules", file});
  static const std::regex kDifference(
      R"rx(expr: (.*), time: (\S+),\s*\n\s*exp: ?([^\n]*)\n\s*got: ?([^\n]*))rx");
  ParityResult result{.evaluations = named_.size()};
  std::map<std::string, std::pair<size_t, std::string>> ways;  // count, and when first
  const std::string& output = promtool.output;
  for (std::sregex_iterator found(output.begin(), output.end(), kDifference), end; found != end;
       ++found) {
    const bool is_late = (*found)[1].str().find("Straggler") != std::string::npos;
    ++result.differing;
    ++ways.try_emplace(std::string(is_late ? "late" : "hang") + ": rules name " +
                           TextOf(NamedIn((*found)[4])) + ", the judge names " +
                           TextOf(NamedIn((*found)[3])),
                       0, (*found)[2])
          .first->second.first;
  }
  for (const auto& [way, evaluations] : ways) {
    result.differences.push_back(way + ": " + std::to_string(evaluations.first) +
                                 " evaluations, the first at " + evaluations.second);
  }
  if (promtool.exit_code != 0 && result.differences.empty())
    throw std::runtime_error("promtool: " + output.substr(0, 2000));
  return result;
}

ParityWatch::ParityWatch(const std::string& segment_directory, const RuleSet& rules)
    : rules_(rules),
      record_(rules.time_scale),
      thread_([this, segment_directory](const std::stop_token& stop) {
        Run(stop, segment_directory, rules_.retention_s);
      }) {}

void ParityWatch::Run(const std::stop_token& stop, const std::string& segment_directory,
                      double retention_s) {
  using Clock = std::chrono::steady_clock;
  collector::Collector collector({.directories = {segment_directory},
                                  .retention = std::chrono::duration_cast<std::chrono::nanoseconds>(
                                      std::chrono::duration<double>(retention_s))});
  collector.Start();
  const auto step = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(record_.step_seconds()));
  const Clock::time_point start = Clock::now();
  for (Clock::time_point next = start; !stop.stop_requested(); next += step) {
    std::this_thread::sleep_until(next);
    record_.Take(collector.Snapshot(), (Clock::now() - start) / step);
  }
}

ParityResult ParityWatch::Stop(const std::string& scratch) {
  thread_.request_stop();
  thread_.join();
  return record_.Compare(rules_.directory + "/nccl-exporter.rules.yml", scratch);
}

}  // namespace nccl_exporter::detection
